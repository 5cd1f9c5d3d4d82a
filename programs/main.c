/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "gemmule_tools.h"
#include "hint.h"
#include "interrupt.h"
#include "output.h"

static const gm_command *const commands[] = {
    &gm_cmd_run,      &gm_cmd_chat,    &gm_cmd_serve,   &gm_cmd_top,     &gm_cmd_inspect,
    &gm_cmd_tokenize, &gm_cmd_logits,  &gm_cmd_bench,   &gm_cmd_devices, &gm_cmd_selftest,
    &gm_cmd_tune,     &gm_cmd_convert, &gm_cmd_compare, &gm_cmd_synth,
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static const gm_command *command_find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    }
    return NULL;
}

/* Names the command that may have been meant. */
static int refuse(const char *what, const char *name)
{
    const char *names[N_COMMANDS + 1] = {"--version"};
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i + 1] = commands[i]->name;
    const char *const meant = gm_hint_find(name, names, N_COMMANDS + 1);
    gm_say_failed("%s%.80s%s%s%s (see gemmule --help)", what, name,
                  meant ? "; did you mean gemmule " : "", meant ? meant : "", meant ? "?" : "");
    return GM_EXIT_USAGE;
}

/* ---- help and version ------------------------------------------------------------------ */

static void print_help(void)
{
    gm_out_printf("gemmule: Gemma 3 on your own machine\n\n"
                  "Usage: gemmule COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        gm_out_printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    gm_out_printf("  %-10s %s\n", "help", "the same as --help; help COMMAND: about one of them");
    gm_out_printf(
        "\n"
        "  --version  version, commit, instruction sets and backends\n"
        "\n"
        "Examples, to begin with:\n"
        "  gemmule run \"Tell me a story about a fox and a lantern\"\n"
        "  gemmule chat\n"
        "  gemmule inspect\n"
        "\n"
        "They use the small model that comes with gemmule, which tells stories. A larger one is a\n"
        "GGUF file or a Hugging Face folder of any Gemma 3; its path goes behind -m.\n"
        "Each command explains its options: gemmule run --help.\n"
        "\n"
        "Exit status: 0 done, 1 refused or failed, 2 a mistake on the command line,\n"
        "130 stopped by Ctrl-C.\n");
}

#if defined(__x86_64__)
#define BUILD_ISA "x86-64"
static void print_cpu(void)
{
    __builtin_cpu_init();
    gm_out_printf("%s%s%s%s%s%s%s", __builtin_cpu_supports("sse4.2") ? " sse4.2" : "",
                  __builtin_cpu_supports("avx") ? " avx" : "",
                  __builtin_cpu_supports("avx2") ? " avx2" : "",
                  __builtin_cpu_supports("fma") ? " fma" : "",
                  __builtin_cpu_supports("avx512f") ? " avx512f" : "",
                  __builtin_cpu_supports("avx512bw") ? " avx512bw" : "",
                  __builtin_cpu_supports("avx512vnni") ? " avx512vnni" : "");
}
#else
#define BUILD_ISA "portable C"
static void print_cpu(void)
{
    gm_out_printf(" not looked at");
}
#endif

static void print_version(void)
{
    gm_out_printf("gemmule %s\ncommit   %s\nisa      %s; this CPU:", GM_VERSION, GM_COMMIT,
                  BUILD_ISA);
    print_cpu();
    gm_out_printf("\n");
    const char *about = NULL;
    for (size_t i = 0; gm_backend_name(i, &about); i++) {
        gm_engine_opts opts = gm_engine_opts_default();
        opts.backend = gm_backend_name(i, NULL);
        gm_backend_info info = {.size = sizeof info};
        const bool known = gm_backend_describe(&opts, 0, &info, NULL) == GM_OK;
        gm_out_printf("backend  %-8s %s", opts.backend, about);
        if (strcmp(about, "not in this build") != 0)
            gm_out_printf(" (here: %s)", known ? info.isa : "cannot be opened");
        gm_out_printf("\n");
    }
}

/* ---- dispatch -------------------------------------------------------------------------- */

static int run_command(const gm_command *cmd, int argc, char **argv)
{
    void *const opts = gm_need(calloc(1, cmd->opts_size));
    gm_words words = {0};
    bool help = false;
    int code = gm_args_parse(cmd, argc, argv, opts, &words, &help);
    if (code == GM_EXIT_OK && help)
        gm_args_help(cmd);
    else if (code == GM_EXIT_OK)
        code = cmd->run(cmd, opts, &words);
    gm_args_free(cmd, opts, &words);
    free(opts);
    return code;
}

static int run_help(const char *name)
{
    const gm_command *const cmd = name ? command_find(name) : NULL;
    if (name && !cmd) return refuse("there is no command ", name);
    if (cmd)
        gm_args_help(cmd);
    else
        print_help();
    return GM_EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    const char *const name = argc > 1 ? argv[1] : NULL;
    if (!name) return refuse("there is no command; to begin: gemmule chat", "");
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return run_help(NULL);
    if (strcmp(name, "help") == 0) return run_help(argc > 2 ? argv[2] : NULL);
    if (strcmp(name, "--version") == 0) {
        print_version();
        return GM_EXIT_OK;
    }
    const gm_command *const cmd = command_find(name);
    if (cmd) return run_command(cmd, argc - 2, argv + 2);
    return refuse(name[0] == '-' ? "unknown option " : "there is no command ", name);
}

/* A standard stream that the caller closed is opened the wrong way round, so that using it fails;
 * else the next file to be opened would take its number, and our words would go into it. */
static void keep_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) == -1) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

/* A mapped model file became shorter: what is read past its new end is a SIGBUS, wherever it
 * happens, and nothing can go on. */
static void end_on_cut_file(int sig)
{
    (void)sig;
    static const char said[] = "gemmule: the model file was cut short while it was being read\n";
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) _exit(GM_EXIT_FAILED);
    _exit(GM_EXIT_FAILED);
}

int main(int argc, char **argv)
{
    keep_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of the write, which is said */
    signal(SIGBUS, end_on_cut_file);
    if (!gm_interrupt_watch()) return gm_say_failed("a thread cannot be started");
    const int code = dispatch(argc, argv);
    gm_out_flush();
    return code;
}
