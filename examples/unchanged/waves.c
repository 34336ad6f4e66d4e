/* Waves on a ring of points, spread over MPI ranks; a program that knows nothing of relight.
 *
 *     ./waves STEPS [restart]
 *
 * On SIGUSR1 all ranks write their restart files after the step at hand and go on. waves.done names
 * the step once all files are there.
 */
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINTS = 1000 }; /* of each rank */

static volatile sig_atomic_t told;

static void on_signal(int number) {
    (void)number;
    told = 1;
}

struct waves {
    long step;
    double now[POINTS + 2], before[POINTS + 2]; /* with a point of each neighbour */
};

static void fail(const char *what, const char *file) {
    fprintf(stderr, "waves: cannot %s %s\n", what, file);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void file_of(char *name, size_t size, int rank, long step) {
    snprintf(name, size, "waves-%d-%ld.restart", rank, step);
}

static void save(const struct waves *w, int rank) {
    char name[64];
    file_of(name, sizeof name, rank, w->step);
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(w, sizeof *w, 1, file) != 1 || fclose(file)) fail("write", name);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) { /* the mark last, and never half of it */
        FILE *mark = fopen("waves.new", "w");
        if (!mark || fprintf(mark, "%ld\n", w->step) < 0 || fclose(mark)) fail("write", "waves.new");
        if (rename("waves.new", "waves.done")) fail("write", "waves.done");
        printf("saved step %ld\n", w->step);
        fflush(stdout);
    }
}

static void load(struct waves *w, int rank) {
    long step;
    FILE *mark = fopen("waves.done", "r");
    if (!mark || fscanf(mark, "%ld", &step) != 1) fail("read", "waves.done");
    fclose(mark);
    char name[64];
    file_of(name, sizeof name, rank, step);
    FILE *file = fopen(name, "rb");
    if (!file || fread(w, sizeof *w, 1, file) != 1) fail("read", name);
    fclose(file);
}

int main(int argc, char **argv) {
    int rank, size, somebody_told;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    signal(SIGUSR1, on_signal);
    long steps = argc > 1 ? atol(argv[1]) : 1000;
    const char *pause = getenv("PAUSE_US");

    static struct waves w;
    if (argc > 2 && strcmp(argv[2], "restart") == 0) {
        load(&w, rank);
    } else {
        for (int i = 0; i < POINTS + 2; i++)
            w.now[i] = w.before[i] = sin(6.283185307179586 * (rank * POINTS + i) / (size * POINTS));
    }
    if (rank == 0) {
        printf("begins with step %ld\n", w.step);
        fflush(stdout);
    }
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    while (w.step < steps) {
        MPI_Sendrecv(&w.now[1], 1, MPI_DOUBLE, left, 0, &w.now[POINTS + 1], 1, MPI_DOUBLE, right, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&w.now[POINTS], 1, MPI_DOUBLE, right, 1, &w.now[0], 1, MPI_DOUBLE, left, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 1; i <= POINTS; i++)
            w.before[i] = 2 * w.now[i] - w.before[i] + 0.1 * (w.now[i - 1] - 2 * w.now[i] + w.now[i + 1]);
        for (int i = 1; i <= POINTS; i++) {
            double next = w.before[i];
            w.before[i] = w.now[i];
            w.now[i] = next;
        }
        w.step++;
        int mine = told;
        MPI_Allreduce(&mine, &somebody_told, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (somebody_told) {
            told = 0;
            save(&w, rank);
        }
        if (pause) usleep(atoi(pause));
    }
    double mine = 0, sum;
    for (int i = 1; i <= POINTS; i++) mine += (rank * POINTS + i) * w.now[i];
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("sum %.17g\n", sum);
    MPI_Finalize();
    return 0;
}
