// Fair shares by tenant, as guests/fair-share has them, without weights: the tenant with the fewest rows goes first, and gets the
// next free slot.
#include "sequor.h"

#include <stdlib.h>

enum { TENANTS = 1024 };

// What a tenant has had, below 0 if it was never met; tenants whose keys meet in one place share it.
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

// A tenant that comes back claims at most a burst from before.
static double turn_of(size_t place) {
  double least = clock_ - burst, turn = had[place] < 0 ? clock_ : had[place];
  return turn > least ? turn : least;
}

const char *sequor_configure(const char *config, const sequor_model *model) {
  burst = sequor_number(config, "burst", 4);
  tenant = sequor_key_column(model, "tenant");
  keys = model->keys.len;
  for (size_t at = 0; at < TENANTS; at++) had[at] = -1;
  return tenant < 0 ? "the model has no key feature \"tenant\"" : NULL;
}

// Candidates with their turns, the next one first. Each has its turn as if those of its tenant before it had run.
static struct turn *in_turn(const sequor_columns *ready) {
  struct turn *order = malloc(ready->len * sizeof *order);
  for (uint32_t i = 0; i < ready->len; i++) {
    order[i] = (struct turn){0, ready->arrival_us.val.ptr[i], i};
    next[place(ready->keys.val.ptr[i * keys + (size_t)tenant])] = -1;
  }
  qsort(order, ready->len, sizeof *order, older);
  for (uint32_t n = 0; n < ready->len; n++) {
    size_t at = place(ready->keys.val.ptr[order[n].i * keys + (size_t)tenant]);
    if (next[at] < 0) next[at] = turn_of(at);
    order[n].turn = next[at];
    next[at] += ready->rows.val.ptr[order[n].i];
  }
  qsort(order, ready->len, sizeof *order, sooner);
  return order;
}

bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer) {
  struct turn *order = in_turn(ready);
  if (order[0].turn > clock_) clock_ = order[0].turn;
  for (uint32_t n = 0; n < ready->len; n++) answer->fire[n] = order[n].i;
  answer->fired = sequor_batch(round, ready, answer->fire, ready->len, answer->fire);
  free(order);
  return true;
}

size_t sequor_admit(const sequor_round *round, const sequor_columns *waiting, const uint32_t *room, size_t instances,
                    const sequor_columns *victims, sequor_admission *said) {
  (void)round, (void)victims;
  struct turn *order = in_turn(waiting);
  sequor_admission *slots = malloc(waiting->len * sizeof *slots);
  size_t given = sequor_in_order(waiting->len, room, instances, slots);
  for (size_t n = 0; n < given; n++) said[order[n].i] = slots[n];
  free(slots);
  free(order);
  return waiting->len;
}

void sequor_observe(const sequor_events *events) {
  for (size_t n = 0; n < events->kind.len; n++) {
    if (events->kind.ptr[n] != SEQUOR_DONE) continue;
    size_t at = place(events->keys.ptr[n * keys + (size_t)tenant]);
    had[at] = turn_of(at) + (double)events->amount.ptr[n];
  }
}
