// Whose deadline is next goes first. Requests without one come last, in the order in which they became ready.
#include "sequor.h"

#include <stdlib.h>

struct due {
  uint64_t at;
  uint32_t i;
};

static uint64_t margin_us;

static int sooner(const void *a, const void *b) {
  const struct due *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->i > y->i) - (x->i < y->i);
}

const char *sequor_configure(const char *config, const sequor_model *model) {
  (void)model;
  margin_us = (uint64_t)sequor_number(config, "margin_us", 0);
  return NULL;
}

bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer) {
  // Deadlines that cannot be kept any more count as none.
  uint64_t soonest = round->now_us + margin_us;
  struct due *order = malloc(ready->len * sizeof *order);
  for (uint32_t i = 0; i < ready->len; i++) {
    uint64_t at = ready->deadline_us.val.ptr[i];
    order[i] = (struct due){at >= soonest ? at : UINT64_MAX, i};
  }
  qsort(order, ready->len, sizeof *order, sooner);
  for (uint32_t n = 0; n < ready->len; n++) answer->fire[n] = order[n].i;
  answer->fired = sequor_batch(round, ready, answer->fire, ready->len, answer->fire);
  free(order);
  return true;
}
