/* A generator in C: eight values of a sine with a random phase, and the next one as the target.
 *
 *   cc -std=c99 -O2 -I tools examples/generator.c -o generator -lm
 *   python -m lanewise check ./generator
 *
 * With a number, the stream has so many samples: ./generator 100.
 */
#include "generator.h"

#include <math.h>

enum { FEATURES = 8 };

/* All that the generator is at any time: it can be saved as it lies in memory. */
typedef struct {
  uint64_t random, t;
  double phase;
} sine;

/* The next of a sequence of random numbers (splitmix64), from 0 to 1. */
static double uniform(uint64_t* random) {
  uint64_t z = *random += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static void begin(sine* s, uint64_t seed) {
  s->random = seed;
  s->t = 0;
  s->phase = 6.283185307179586 * uniform(&s->random);
}

static void make(sine* s, float x[FEATURES], float y[1]) {
  int i;
  for (i = 0; i < FEATURES; ++i) {
    x[i] = (float)(sin(s->phase + 0.3 * (double)(s->t + (uint64_t)i)) + 0.01 * (uniform(&s->random) - 0.5));
  }
  y[0] = (float)sin(s->phase + 0.3 * (double)(s->t + FEATURES));
  ++s->t;
}

int main(int argc, char** argv) {
  static lanewise g;
  const lanewise_form form = {"sine in C", {LANEWISE_FLOAT32, 1, {FEATURES}}, {LANEWISE_FLOAT32, 1, {1}}, 1, 1};
  const uint64_t samples = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX;
  float x[FEATURES], y[1];
  sine s;
  int done = lanewise_open(&g, &form);
  memset(&s, 0, sizeof s);
  while (done == LANEWISE_OK) {
    switch (lanewise_next(&g)) {
      case LANEWISE_BEGIN:
        begin(&s, g.seed);
        break;
      case LANEWISE_SAMPLE:
        if (s.t == samples) {
          done = lanewise_end(&g);
        } else {
          make(&s, x, y);
          done = lanewise_send(&g, x, y, NULL);
        }
        break;
      case LANEWISE_SAVE:
        done = lanewise_save(&g, &s, sizeof s);
        break;
      case LANEWISE_RESTORE:
        if (g.state_size == sizeof s) {
          memcpy(&s, g.state, sizeof s);
        } else {
          done = lanewise_fail(&g, "the state is not one of this generator");
        }
        break;
      case LANEWISE_BYE:
        lanewise_close(&g);
        return 0;
      default:
        done = LANEWISE_FAILED;
    }
  }
  fprintf(stderr, "%s\n", g.error);
  return 1;
}
