/* A stand-in for the program nvidia-cuda-mps-control, daemon and front end.
 *
 * `-d` starts the daemon and returns once it listens, `-f` stays in front, `-v` prints the version; without arguments
 * commands come from standard input: get_server_list, get_server_status PID, get_client_list PID, ps,
 * get_device_client_list, get_default_active_thread_percentage, set_default_active_thread_percentage P,
 * start_server -uid N, quit [-t N]. Pipes and logs are where CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY say. The
 * daemon has a server process of its own once a client (a process of the stand-in driver) came, or `start_server` did.
 *
 * Keys of the script (ELASTICO_MOCK, see script.h):
 *
 *   mps_start ok | hang | fail | no_pipe | die | stale   hang: -d does not return; fail: it says that it cannot;
 *                                no_pipe: it runs without a pipe; die: it ends as soon as it listens;
 *                                stale: nothing runs, but a pipe and a file with the id of a dead process are left
 *   mps_control ok | hang | refuse [command]   every command, or the named one, hangs or is refused
 *   mps_die_after <n>            the daemon dies after n commands
 *   mps_quit ok | ignore         ignore: neither quit nor SIGTERM ends it
 *   mps_server_status ACTIVE     or FAULT, after a client's fault
 *   mps_version 13.0
 */
#define _GNU_SOURCE
#include "script.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char pipes[3000], logs[3000];
static pid_t server;
static char *first_argument;
static size_t argument_room;

static bool scripted(const char *key, const char *word) {
    char line[128];
    return mock_line(key, 0, line, sizeof line) && !strncmp(line, word, strlen(word)) &&
           (!line[strlen(word)] || line[strlen(word)] == ' ');
}

/* `mps_control hang`: all commands; `mps_control hang ps`: that one. */
static bool scripted_for(const char *word, const char *command) {
    char line[128], kind[32] = "", only[64] = "";
    if (!mock_line("mps_control", 0, line, sizeof line)) return false;
    sscanf(line, "%31s %63s", kind, only);
    return !strcmp(kind, word) && (!only[0] || !strncmp(command, only, strlen(only)));
}

static void note(const char *name, const char *format, ...) {
    char path[4096], stamp[32];
    time_t now = time(NULL);
    snprintf(path, sizeof path, "%s/%s.log", logs, name);
    FILE *file = fopen(path, "a");
    if (!file) return;
    strftime(stamp, sizeof stamp, "%F %T", localtime(&now));
    fprintf(file, "[%s.000 %s %5d] ", stamp, !strcmp(name, "server") ? "Server" : "Control", getpid());
    va_list list;
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fputc('\n', file);
    fclose(file);
}

static struct sockaddr_un address(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/control", pipes);
    return to;
}

/* Processes of the stand-in driver that joined, still alive, one id per line. */
static int clients(char *text, size_t size) {
    char path[4096];
    int id, count = 0;
    snprintf(path, sizeof path, "%s/clients", pipes);
    FILE *file = fopen(path, "r");
    *text = 0;
    while (file && fscanf(file, "%d", &id) == 1)
        if (!kill(id, 0)) {
            count++;
            snprintf(text + strlen(text), size - strlen(text), "%d\n", id);
        }
    if (file) fclose(file);
    return count;
}

static bool had_clients(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/clients", pipes);
    return !access(path, F_OK);
}

static void start_server(void) {
    if (server && !kill(server, 0)) return;
    server = fork();
    if (server) {
        note("control", "Starting new server %d for user %d", server, getuid());
        return;
    }
    for (int file = 3; file < 64; file++) close(file); /* above all the connection of the one who asked */
    /* Its name tells it from the daemon. */
    snprintf(first_argument, argument_room, "nvidia-cuda-mps-server");
    signal(SIGTERM, SIG_DFL);
    note("server", "Active Threads Percentage set to 100.0");
    for (;;) pause();
}

static void answer(const char *command, char *text, size_t size) {
    char list[4096], status[32] = "ACTIVE";
    *text = 0;
    if (had_clients() || !strncmp(command, "start_server", 12)) start_server();
    if (!strcmp(command, "get_server_list")) {
        if (server) snprintf(text, size, "%d\n", server);
    } else if (!strncmp(command, "get_server_status", 17)) {
        mock_line("mps_server_status", 0, status, sizeof status);
        snprintf(text, size, "%s\n", status);
    } else if (!strncmp(command, "get_client_list", 15) || !strcmp(command, "get_device_client_list")) {
        clients(text, size);
    } else if (!strcmp(command, "ps")) {
        size_t used = (size_t)snprintf(text, size, "PID       ID        SERVER    DEVICE             NAMESPACE        COMMAND\n");
        clients(list, sizeof list);
        char *state = NULL;
        for (char *id = strtok_r(list, "\n", &state); id; id = strtok_r(NULL, "\n", &state))
            used += (size_t)snprintf(text + used, size - used, "%-9s %-9d %-9d GPU-57a1d100-e1a54c %-16d worker\n", id, 1, server, 4026531836u);
    } else if (!strcmp(command, "get_default_active_thread_percentage")) {
        snprintf(text, size, "100.0\n");
    } else if (!strncmp(command, "set_default_active_thread_percentage", 36)) {
        snprintf(text, size, "%.1f\n", atof(command + 36));
    } else if (strncmp(command, "quit", 4) && strncmp(command, "start_server", 12)) {
        snprintf(text, size, "Unknown command: %s\n", command);
    }
}

static void remove_pipes(void) {
    static const char *names[] = {"control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid", "clients"};
    char path[4096];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", pipes, names[i]);
        unlink(path);
    }
}

static void end_daemon(int signal) {
    (void)signal;
    if (server) {
        kill(server, SIGTERM);
        waitpid(server, NULL, 0);
    }
    remove_pipes();
    _exit(0);
}

/* Listens until it is told to quit. */
static void serve(int listener) {
    char text[8192], command[512];
    double last = mock_number("mps_die_after", 0);
    for (int served = 0;;) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        ssize_t size = read(client, command, sizeof command - 1);
        command[size > 0 ? size : 0] = 0;
        command[strcspn(command, "\n")] = 0;
        note("control", "Accepting connection, command `%s`", command);
        answer(command, text, sizeof text);
        if (write(client, text, strlen(text)) < 0) note("control", "client is gone");
        close(client);
        if (!strncmp(command, "quit", 4) && !scripted("mps_quit", "ignore")) end_daemon(0);
        if (last && ++served >= last) {
            note("control", "Failed to communicate with the driver: dying as scripted");
            _exit(1);
        }
    }
}

static void touch(const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", pipes, name);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fputs(text, file);
    fclose(file);
}

static int run_daemon(bool foreground) {
    char id[32];
    int ready[2];
    struct sockaddr_un here = address();
    if (scripted("mps_start", "hang")) for (;;) pause();
    if (scripted("mps_start", "fail")) {
        note("control", "Starting control daemon");
        note("control", "Failed to initialize: device is in prohibited mode");
        fprintf(stderr, "An instance of this daemon cannot be started\n");
        return 1;
    }
    if (scripted("mps_start", "stale")) {
        pid_t child = fork();
        if (!child) _exit(0);
        waitpid(child, NULL, 0);
        snprintf(id, sizeof id, "%d\n", child);
        touch("nvidia-cuda-mps-control.pid", id);
        touch("control", "");
        return 0;
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!connect(probe, (struct sockaddr *)&here, sizeof here)) {
        fprintf(stderr, "An instance of this daemon is already running\n");
        return 1;
    }
    close(probe);
    unlink(here.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!scripted("mps_start", "no_pipe") && (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 16))) {
        fprintf(stderr, "Cannot create the control pipe in %s: %s\n", pipes, strerror(errno));
        return 1;
    }
    if (!foreground) {
        if (pipe(ready)) return 1;
        pid_t child = fork();
        if (child) { /* returns once the daemon listens */
            close(ready[1]);
            return read(ready[0], id, 1) == 1 ? 0 : 1;
        }
        setsid();
    }
    signal(SIGTERM, scripted("mps_quit", "ignore") ? SIG_IGN : end_daemon);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    snprintf(id, sizeof id, "%d\n", getpid());
    touch("nvidia-cuda-mps-control.pid", id);
    touch("control_lock", "");
    touch("control_privileged", "");
    touch("log", "");
    note("control", "Starting control daemon using socket %s", here.sun_path);
    note("control", "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", pipes);
    if (!foreground && write(ready[1], "", 1) != 1) return 1;
    if (scripted("mps_start", "die")) {
        note("control", "Fatal: the driver is gone");
        _exit(1);
    }
    if (!foreground) { /* a pipe to the starter would look like a daemon that does not start */
        close(ready[0]);
        close(ready[1]);
    }
    if (scripted("mps_start", "no_pipe")) for (;;) pause();
    serve(listener);
    return 0;
}

static int control(const char *command) {
    char text[8192];
    ssize_t size;
    struct sockaddr_un to = address();
    if (scripted_for("hang", command)) for (;;) pause();
    if (scripted_for("refuse", command)) {
        fprintf(stderr, "Permission denied: only the owner may do `%s`\n", command);
        return 1;
    }
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(client, (struct sockaddr *)&to, sizeof to)) {
        fprintf(stderr, "Cannot find MPS control daemon process\n");
        return 1;
    }
    if (write(client, command, strlen(command)) < 0) return 1;
    shutdown(client, SHUT_WR);
    while ((size = read(client, text, sizeof text)) > 0) fwrite(text, 1, (size_t)size, stdout);
    close(client);
    return 0;
}

int main(int count, char **arguments) {
    char line[512], version[64] = "13.0";
    const char *pipe_folder = getenv("CUDA_MPS_PIPE_DIRECTORY"), *log_folder = getenv("CUDA_MPS_LOG_DIRECTORY");
    snprintf(pipes, sizeof pipes, "%s", pipe_folder ? pipe_folder : "/tmp/nvidia-mps");
    snprintf(logs, sizeof logs, "%s", log_folder ? log_folder : "/var/log/nvidia-mps");
    mkdir(pipes, 0755);
    mkdir(logs, 0755);
    mock_need_script();
    first_argument = arguments[0];
    argument_room = strlen(arguments[0]) + 1;
    const char *option = count > 1 ? arguments[1] : "";
    if (!strcmp(option, "-v")) {
        mock_line("mps_version", 0, version, sizeof version);
        printf("%s\n", version);
        return 0;
    }
    if (!strcmp(option, "-d") || !strcmp(option, "-f")) return run_daemon(option[1] == 'f');
    if (*option) {
        fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f | -v]\n");
        return 1;
    }
    int code = 0;
    while (!code && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        if (*line) code = control(line);
    }
    return code;
}
