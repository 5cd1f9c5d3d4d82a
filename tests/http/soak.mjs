// SPDX-License-Identifier: MIT
//
// Many streams at once for a while: node soak.mjs URL PID SECONDS
//
// 64 clients ask again and again; each prompt and seed has one right answer, which the first
// stream of it gives. Some leave in the middle, some stop reading until they are parked, and 100
// connections are open and say nothing.
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import { check, finish, metric, same, until } from './check.mjs'

const url = process.argv[2]
const pid = process.argv[3]
const seconds = Number(process.argv[4])
const port = Number(new URL(url).port)
const CLIENTS = 64
const IDLE = 100
const PARKED = 4
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity })
const right = new Map()
const seen = { done: 0, left: 0, wrong: 0, errors: [], tokens: 0 }

function body(kind, more = {}) {
    return JSON.stringify({
        messages: [{ role: 'user', content: `Question ${kind % 16}: ${'word '.repeat(5 * (kind % 7))}` }],
        seed: kind,
        max_tokens: 20 + (kind % 5) * 25,
        ignore_eos: true,
        stream: true,
        ...more,
    })
}

function ask(text, options = {}) {
    return http.request({
        host: '127.0.0.1', port, path: '/v1/chat/completions', method: 'POST', agent,
        headers: { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) },
        ...options,
    })
}

// One stream to its end, or to its n-th chunk.
function stream(kind, leaveAfter = Infinity, more = {}) {
    return new Promise((resolve) => {
        const text = body(kind, more)
        const request = ask(text)
        let raw = ''
        let chunks = 0
        const stall = setTimeout(() => {
            seen.errors.push(`no end of ${kind}`)
            request.destroy()
        }, 60000)
        const end = () => { clearTimeout(stall); resolve() }
        request.on('error', (e) => {
            if (leaveAfter === Infinity) seen.errors.push(String(e))
            end()
        })
        request.on('response', (reply) => {
            if (reply.statusCode !== 200) seen.errors.push(`status ${reply.statusCode}`)
            reply.setEncoding('utf8')
            reply.on('data', (data) => {
                raw += data
                chunks++
                if (chunks >= leaveAfter) {
                    seen.left++
                    request.destroy()
                }
            })
            reply.on('close', end)
            reply.on('error', end)
            reply.on('end', () => {
                if (leaveAfter !== Infinity) return
                if (!raw.endsWith('data: [DONE]\n\n')) seen.errors.push(`${kind} ends with ${raw.slice(-80)}`)
                const events = raw.split('\n\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)))
                const answer = events.map((e) => e.choices?.[0]?.delta?.content ?? '').join('')
                seen.tokens += events.length
                if (!right.has(kind)) right.set(kind, answer)
                if (right.get(kind) !== answer) seen.wrong++
                seen.done++
            })
        })
        request.end(text)
    })
}

async function client(i, deadline) {
    for (let n = 0; Date.now() < deadline; n++) await stream((7 * i + n) % 40, n % 5 === 4 ? 3 : Infinity)
}

// Prompts of their own until beginnings have to go: from then on every page of the KV cache has been
// touched, and memory that grows is a leak.
async function fill() {
    for (let n = 1000; (await metric(url, 'cache_evictions_total')) < 1; n += 8) {
        const content = (i) => `${n + i} ${[...Array(60).keys()].map((k) => (n + i) * k).join(' ')}`.slice(0, 150)
        await Promise.all([...Array(8).keys()].map((i) =>
            stream(n + i, Infinity, { messages: [{ role: 'user', content: content(i) }], max_tokens: 20 })))
    }
}

// A client that reads nothing: its socket takes little, so that it is soon behind.
function sleeper() {
    const text = body(3, { max_tokens: 100000, n: 8 })
    const socket = net.connect({ port, host: '127.0.0.1' })
    socket.on('error', () => {})
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`)
    socket.pause()
    return socket
}

const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1])
const fds = () => fs.readdirSync(`/proc/${pid}/fd`).length

const before = fds()
const idle = [...Array(IDLE)].map(() => net.connect({ port, host: '127.0.0.1' }).on('error', () => {}))
const sleepers = [...Array(PARKED)].map(sleeper)
await until('those who do not read are parked', async () => (await metric(url, 'requests_parked')) >= PARKED * 8, 60)
await until('idle connections are open', async () => (await metric(url, 'connections')) >= IDLE + PARKED)
await fill()
const warm = Date.now() + 1000 * Math.min(60, seconds / 4)
await Promise.all([...Array(CLIENTS).keys()].map((i) => client(i, warm)))
const memory = rss()
const end = Date.now() + 1000 * seconds
await Promise.all([...Array(CLIENTS).keys()].map((i) => client(i, end)))
const grown = rss() - memory

same('no errors', seen.errors.slice(0, 5), [])
same('no wrong answers', seen.wrong, 0)
check('streams ended', seen.done > CLIENTS, seen)
check('no connection is kept for those who left', fds() <= before + CLIENTS + IDLE + PARKED + 32, fds())
check('the parked are parked still', (await metric(url, 'requests_parked')) >= PARKED * 8)
for (const s of [...sleepers, ...idle]) s.destroy()
agent.destroy()
await until('all who left were noticed', async () => (await metric(url, 'cancelled_total')) >= seen.left + PARKED)
await until('nothing runs any more', async () => (await metric(url, 'requests_running')) === 0)
same('nor waits', await metric(url, 'requests_queued'), 0)
await until('no connection is left over', async () => fds() <= before + 8)
check('memory has not grown', grown < 32 * 1024, `${grown} kB`)
console.log(`${seen.done} streams, ${seen.tokens} chunks, ${seen.left} left in the middle, memory +${grown} kB`)
finish()
