// What no plug-in should do, for the server's tests: what its configuration tells it to, after so many calls in which it behaves.
#include "sequor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool loops, traps, asserts, overflows, answers_beyond;
static double after, calls;

const char *sequor_configure(const char *config, const sequor_model *model) {
  (void)model;
  loops = strstr(config, "\"loop\""), traps = strstr(config, "\"trap\""), asserts = strstr(config, "\"assert\"");
  overflows = strstr(config, "\"recursion\""), answers_beyond = strstr(config, "\"beyond\"");
  after = sequor_number(config, "after", 0);
  return NULL;
}

// A kilobyte of stack each time; the number it ends at is never reached.
__attribute__((noinline)) static uint32_t deeper(volatile uint32_t *above) {
  volatile uint32_t mine[256];
  mine[0] = above[0] + 1;
  return mine[0] == UINT32_MAX ? 0 : deeper(mine) + mine[0];
}

bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer) {
  for (uint32_t i = 0; i < ready->len; i++) answer->fire[i] = i;
  answer->fired = sequor_batch(round, ready, answer->fire, ready->len, answer->fire);
  if (++calls <= after) return true;
  volatile uint32_t n = 0;
  while (loops) n = n + 1;
  if (traps) abort();
  assert(!asserts);
  if (overflows) answer->fire[0] = deeper(&n);
  if (answers_beyond) answer->fire[0] = ready->len + 33;
  return true;
}
