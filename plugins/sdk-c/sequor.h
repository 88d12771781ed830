// Writes plug-ins for the Sequor inference server in C. Define what plugin.toml wants of these: sequor_plan, sequor_observe, sequor_admit,
// sequor_configure, sequor_save, sequor_restore; the others have defaults. What they are given is theirs to read until they return.
#ifndef SEQUOR_H
#define SEQUOR_H

#include "scheduler_plugin.h"

typedef sequor_plugin_types_model_t sequor_model;
typedef exports_sequor_plugin_scheduler_round_t sequor_round;
// A column that plugin.toml does not want is not there (`is_some`); its numbers are `ready->rows.val.ptr[i]`.
typedef exports_sequor_plugin_scheduler_columns_t sequor_columns;
typedef exports_sequor_plugin_scheduler_events_t sequor_events;
typedef exports_sequor_plugin_scheduler_admission_t sequor_admission;

// Kinds of events; the rest of the table is in the contract (scheduler.wit).
enum { SEQUOR_BEGAN = 1, SEQUOR_SEATED = 2, SEQUOR_DONE = 3, SEQUOR_FAILED = 4, SEQUOR_ENDED = 5 };

// An answer: fire and reject have room for as many indices as there are candidates.
typedef struct {
  uint32_t *fire;
  size_t fired;
  uint32_t *reject;
  size_t rejected;
  uint32_t code;      // why, of those that are rejected
  uint64_t wake_us;   // where nothing is fired: ask again at this time; UINT64_MAX: when something happens
} sequor_answer;

// === what a plug-in defines ===

// `config` is JSON and ends with 0. A text is why it is refused.
const char *sequor_configure(const char *config, const sequor_model *model);
// False: what the server would do without a plug-in.
bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer);
void sequor_observe(const sequor_events *events);
// How many of the first of `waiting` are answered for; `said` has room for all, and each waits on unless it says otherwise. `room` counts the free
// slots of each instance. Without one: sequor_in_order.
size_t sequor_admit(const sequor_round *round, const sequor_columns *waiting, const uint32_t *room, size_t instances,
                    const sequor_columns *victims, sequor_admission *said);
// `saved` is from malloc; its length.
size_t sequor_save(uint8_t **saved);
const char *sequor_restore(const uint8_t *saved, size_t len);

// === what helps it ===

// Level 0 is an error, 3 for debugging.
void sequor_log(uint32_t level, const char *message);
// The number of this name in the outermost table of a configuration.
double sequor_number(const char *config, const char *name, double missing);
// The column of a key feature, or -1; keys are ready->keys.val.ptr[i * model->keys.len + column].
int sequor_key_column(const sequor_model *model, const char *feature);
// The key of a text: its 64-bit FNV-1a.
uint64_t sequor_key_of(const char *text);
// Of these candidates, in this order, those that one batch can take. Returns how many; `batch` may be `order`.
size_t sequor_batch(const sequor_round *round, const sequor_columns *ready, const uint32_t *order, size_t count, uint32_t *batch);

// What becomes of one that waits for a slot: it gets a free one of this instance; it gets that of this victim (an index); it waits on; it is refused,
// with the plug-in's own number for why.
sequor_admission sequor_take(uint32_t instance);
sequor_admission sequor_evict(uint32_t victim);
sequor_admission sequor_defer(void);
sequor_admission sequor_refuse(uint32_t code);
// Whoever waits longest takes what is free, from the instance with the most room. How many get one: `said[n]` is for the n-th of those who wait.
size_t sequor_in_order(size_t waiting, const uint32_t *room, size_t instances, sequor_admission *said);

#endif
