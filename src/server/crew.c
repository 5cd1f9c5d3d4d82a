/* SPDX-License-Identifier: MIT */
#include "server/crew.h"

static void *crew_main(void *arg)
{
    gm_crew *const c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->first && !c->stopping)
            pthread_cond_wait(&c->wake, &c->lock);
        gm_exchange *const x = c->first;
        if (!x) break;
        c->first = x->next;
        pthread_mutex_unlock(&c->lock);
        c->work(x);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

gm_status gm_crew_init(gm_crew *c, uint32_t n, void (*work)(gm_exchange *x), gm_err *err)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    c->work = work;
    for (uint32_t i = 0; i < n; i++) {
        const int os = pthread_create(&c->threads[i], NULL, crew_main, c);
        if (os) return gm_fail(err, GM_E_IO, os, "server: a thread cannot be started");
        c->n++;
    }
    return GM_OK;
}

void gm_crew_put(gm_crew *c, gm_exchange *x)
{
    pthread_mutex_lock(&c->lock);
    x->next = NULL;
    if (c->first)
        c->last->next = x;
    else
        c->first = x;
    c->last = x;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

void gm_crew_deinit(gm_crew *c)
{
    if (!c->work) return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->n; i++)
        pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    *c = (gm_crew){0};
}
