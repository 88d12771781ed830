// Writes plug-ins for the Sequor inference server in C. Define the hooks that plugin.toml names: sequor_plan, sequor_observe, sequor_admit,
// sequor_configure, sequor_save, sequor_restore; the others have defaults. A hook may read its arguments until it returns.
#ifndef SEQUOR_H
#define SEQUOR_H

#include "scheduler_plugin.h"

typedef sequor_plugin_types_model_t sequor_model;
typedef exports_sequor_plugin_scheduler_round_t sequor_round;
// A column that plugin.toml does not name is not there (`is_some`). Its numbers are `ready->rows.val.ptr[i]`.
typedef exports_sequor_plugin_scheduler_columns_t sequor_columns;
typedef exports_sequor_plugin_scheduler_events_t sequor_events;
typedef exports_sequor_plugin_scheduler_admission_t sequor_admission;
// A candidate that is refused: `candidate`, `code`, and whether its sequence `ends`.
typedef exports_sequor_plugin_scheduler_rejection_t sequor_rejection;

// Kinds of events; the rest of the table is in the contract (scheduler.wit).
enum { SEQUOR_BEGAN = 1, SEQUOR_SLOTTED = 2, SEQUOR_DONE = 3, SEQUOR_FAILED = 4, SEQUOR_ENDED = 5, SEQUOR_BATCH_RAN = 6 };

// An answer. `fire` and `reject` have room for as many entries as there are candidates.
typedef struct {
  uint32_t *fire;
  size_t fired;
  sequor_rejection *reject;
  size_t rejected;
  uint64_t wake_us;   // if nothing runs now: the time of the next question at the latest; UINT64_MAX: none
} sequor_answer;

// === hooks, which a plug-in defines ===

// `config` is JSON and ends with 0. A text refuses it, and is the reason.
const char *sequor_configure(const char *config, const sequor_model *model);
// False leaves the round to the built-in policy. The events since the last call come before, by sequor_observe.
bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer);
void sequor_observe(const sequor_events *events);
// Answers for the first of `waiting`, and returns for how many. `said` has room for all, and each entry is sequor_defer() at first. `room` is the
// number of free slots of each instance. Default: sequor_in_order.
size_t sequor_admit(const sequor_round *round, const sequor_columns *waiting, const uint32_t *room, size_t instances,
                    const sequor_columns *victims, sequor_admission *said);
// Sets `saved` to bytes from malloc, and returns their number.
size_t sequor_save(uint8_t **saved);
const char *sequor_restore(const uint8_t *saved, size_t len);

// === functions for it ===

// Level 0 is an error, 3 for debugging.
void sequor_log(uint32_t level, const char *message);
// Adds to a counter of the plug-in. `label` may be NULL: then the counter has no label.
void sequor_metric_add(const char *name, const char *label, const char *text, double value);
// The number of this name in the outermost table of a configuration.
double sequor_number(const char *config, const char *name, double missing);
// The column of a key feature, or -1; keys are ready->keys.val.ptr[i * model->keys.len + column].
int sequor_key_column(const sequor_model *model, const char *feature);
// The key of a text: its 64-bit FNV-1a.
uint64_t sequor_key_of(const char *text);
// Refuses a candidate, and ends its sequence.
void sequor_reject_candidate(sequor_answer *answer, uint32_t candidate, uint32_t code);
// Refuses this step of a candidate, and lets its sequence go on.
void sequor_shed_candidate(sequor_answer *answer, uint32_t candidate, uint32_t code);
// Of these candidates, in this order, those that one batch can take. Returns how many; `batch` may be `order`.
size_t sequor_batch(const sequor_round *round, const sequor_columns *ready, const uint32_t *order, size_t count, uint32_t *batch);

// The answer for one sequence that waits for a slot: it gets a free slot of this instance; it gets the slot of this victim (an index); it goes on
// waiting; its START is refused, with the plug-in's code for the reason.
sequor_admission sequor_take(uint32_t instance);
sequor_admission sequor_evict(uint32_t victim);
sequor_admission sequor_defer(void);
sequor_admission sequor_reject(uint32_t code);
// Gives the free slots to the sequences that wait longest, from the instance with the most room. Returns how many get one: `said[n]` is for the n-th.
size_t sequor_in_order(size_t waiting, const uint32_t *room, size_t instances, sequor_admission *said);

#endif
