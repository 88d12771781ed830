// Fair shares by tenant, as guests/fair-share has them, without weights: whoever has had the fewest rows goes first.
#include "sequor.h"

#include <stdlib.h>

enum { TENANTS = 1024 };

// What a tenant has had; tenants whose keys meet in one place share it.
static double had[TENANTS];
static double next[TENANTS];
static double clock_, burst;
static int tenant;
static size_t keys;

struct turn {
  double turn;
  uint64_t arrival;
  uint32_t i;
};

static int sooner(const void *a, const void *b) {
  const struct turn *x = a, *y = b;
  if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
  return x->arrival != y->arrival ? (x->arrival < y->arrival ? -1 : 1) : (x->i > y->i) - (x->i < y->i);
}

static int older(const void *a, const void *b) {
  const struct turn *x = a, *y = b;
  return x->arrival != y->arrival ? (x->arrival < y->arrival ? -1 : 1) : (x->i > y->i) - (x->i < y->i);
}

static size_t place(uint64_t key) {
  return (key ^ key >> 32) % TENANTS;
}

// Nobody who comes back claims more than a burst from before.
static double turn_of(size_t place) {
  double least = clock_ - burst;
  return had[place] > least ? had[place] : least;
}

const char *sequor_configure(const char *config, const sequor_model *model) {
  burst = sequor_number(config, "burst", 4);
  tenant = sequor_key_column(model, "tenant");
  keys = model->keys.len;
  return tenant < 0 ? "the model has no key feature \"tenant\"" : NULL;
}

bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer) {
  struct turn *order = malloc(ready->len * sizeof *order);
  for (uint32_t i = 0; i < ready->len; i++) {
    order[i] = (struct turn){0, ready->arrival_us.val.ptr[i], i};
    next[place(ready->keys.val.ptr[i * keys + (size_t)tenant])] = -1;
  }
  qsort(order, ready->len, sizeof *order, older);
  for (uint32_t n = 0; n < ready->len; n++) {
    size_t at = place(ready->keys.val.ptr[order[n].i * keys + (size_t)tenant]);
    if (next[at] < 0) next[at] = turn_of(at) > 0 ? turn_of(at) : 0;
    order[n].turn = next[at];
    next[at] += ready->rows.val.ptr[order[n].i];
  }
  qsort(order, ready->len, sizeof *order, sooner);
  if (order[0].turn > clock_) clock_ = order[0].turn;
  for (uint32_t n = 0; n < ready->len; n++) answer->fire[n] = order[n].i;
  answer->fired = sequor_batch(round, ready, answer->fire, ready->len, answer->fire);
  free(order);
  return true;
}

void sequor_observe(const sequor_events *events) {
  for (size_t n = 0; n < events->kind.len; n++) {
    if (events->kind.ptr[n] != SEQUOR_DONE) continue;
    size_t at = place(events->keys.ptr[n * keys + (size_t)tenant]);
    had[at] = turn_of(at) + (double)events->amount.ptr[n];
  }
}
