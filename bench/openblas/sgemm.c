/* sgemm times OpenBLAS for gemmbench, which starts it and compares.
 *
 * Build:  cc -O2 -o sgemm sgemm.c -lopenblas
 * Use:    sgemm THREADS
 *
 * It prints one line with the library's configuration and the kernel it chose. Then each line
 * "FORM m n k calls" on standard input (FORM is NN, NT or TN) is answered with the seconds that one
 * of that many sgemm calls took on average. Operands are row-major and filled with small numbers.
 */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

char *openblas_get_config(void);
char *openblas_get_corename(void);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static float *buffer(size_t n) {
    float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "sgemm: no memory for %zu floats\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((i * 2654435761u >> 8) % 1000) / 500.0f - 1.0f;
    return p;
}

int main(int argc, char **argv) {
    if (argc != 2 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: sgemm THREADS\n");
        return 2;
    }
    openblas_set_num_threads(atoi(argv[1]));
    printf("%s; kernel %s\n", openblas_get_config(), openblas_get_corename());
    fflush(stdout);

    char form[8];
    int m, n, k, calls;
    while (scanf("%7s %d %d %d %d", form, &m, &n, &k, &calls) == 5) {
        int ta = strcmp(form, "TN") == 0, tb = strcmp(form, "NT") == 0;
        float *a = buffer((size_t)m * k), *b = buffer((size_t)k * n), *c = buffer((size_t)m * n);
        double start = 0;
        for (int i = -1; i < calls; i++) { /* the first call is not timed */
            if (i == 0)
                start = now();
            cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                        m, n, k, 1, a, ta ? m : k, b, tb ? k : n, 0, c, n);
        }
        printf("%.9f\n", (now() - start) / calls);
        fflush(stdout);
        free(a);
        free(b);
        free(c);
    }
    return 0;
}
