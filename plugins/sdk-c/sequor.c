// Between the generated code of the contract and a plug-in: allocates and frees memory, and has the defaults of hooks.
#include "sequor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sequor_model given;

// The generated code wants an object file that carries the component's type; `sequor plugin build` puts the type in without one.
void __component_type_object_force_link_scheduler_plugin(void);
void __component_type_object_force_link_scheduler_plugin(void) {}

static void *room_for(size_t count, size_t size) {
  return count ? malloc(count * size) : NULL;
}

// What assert.h calls here. That of the library writes to standard error, which a component has not.
_Noreturn void sequor_assertion_failed(const char *expression, const char *file, int line, const char *function);
_Noreturn void sequor_assertion_failed(const char *expression, const char *file, int line, const char *function) {
  const char *slash = strrchr(file, '/');
  char said[512];
  snprintf(said, sizeof said, "assertion failed: %s, in %s at %s:%d", expression, function, slash ? slash + 1 : file, line);
  sequor_log(0, said);
  __builtin_trap();
}

static void fail(const char *why, scheduler_plugin_string_t *err) {
  scheduler_plugin_string_dup(err, why);
}

// === defaults ===

__attribute__((weak)) const char *sequor_configure(const char *config, const sequor_model *model) {
  (void)config, (void)model;
  return NULL;
}

__attribute__((weak)) bool sequor_plan(const sequor_round *round, const sequor_columns *ready, sequor_answer *answer) {
  (void)round, (void)ready, (void)answer;
  return false;
}

__attribute__((weak)) void sequor_observe(const sequor_events *events) {
  (void)events;
}

__attribute__((weak)) size_t sequor_admit(const sequor_round *round, const sequor_columns *waiting, const uint32_t *room,
                                          size_t instances, const sequor_columns *victims, sequor_admission *said) {
  (void)round, (void)victims;
  return sequor_in_order(waiting->len, room, instances, said);
}

__attribute__((weak)) size_t sequor_save(uint8_t **saved) {
  *saved = NULL;
  return 0;
}

__attribute__((weak)) const char *sequor_restore(const uint8_t *saved, size_t len) {
  (void)saved, (void)len;
  return NULL;
}

// === the contract ===

bool exports_sequor_plugin_scheduler_configure(scheduler_plugin_string_t *config, sequor_model *model,
                                               scheduler_plugin_string_t *err) {
  given = *model; // kept for good: it names the features
  char *text = calloc(config->len + 1, 1);
  memcpy(text, config->ptr, config->len);
  const char *wrong = sequor_configure(text, &given);
  if (wrong) fail(wrong, err);
  free(text);
  scheduler_plugin_string_free(config);
  return !wrong;
}

// Reports the events that come with a question, if there are any.
static void observe(sequor_events *maybe_events) {
  if (!maybe_events) return;
  sequor_observe(maybe_events);
  exports_sequor_plugin_scheduler_events_free(maybe_events);
}

bool exports_sequor_plugin_scheduler_plan(sequor_round *round, sequor_columns *ready, sequor_events *maybe_events,
                                          exports_sequor_plugin_scheduler_decision_t *ret) {
  observe(maybe_events);
  sequor_answer answer = {.wake_us = UINT64_MAX};
  answer.fire = room_for(ready->len, sizeof(uint32_t));
  answer.reject = room_for(ready->len, sizeof(sequor_rejection));
  bool own = sequor_plan(round, ready, &answer);
  if (own) {
    ret->fire.ptr = answer.fire;
    ret->fire.len = answer.fired;
    ret->reject.ptr = answer.reject;
    ret->reject.len = answer.rejected;
    ret->wake_us.is_some = answer.wake_us != UINT64_MAX;
    ret->wake_us.val = answer.wake_us;
    // What holds nothing is not given back by its reader.
    if (!answer.fired) free(answer.fire);
    if (!answer.rejected) free(answer.reject);
  } else {
    free(answer.fire);
    free(answer.reject);
  }
  exports_sequor_plugin_scheduler_columns_free(ready);
  return own;
}

void exports_sequor_plugin_scheduler_admit(sequor_round *round, sequor_columns *waiting, scheduler_plugin_list_u32_t *room,
                                           sequor_columns *victims, sequor_events *maybe_events,
                                           exports_sequor_plugin_scheduler_list_admission_t *ret) {
  observe(maybe_events);
  ret->ptr = room_for(waiting->len, sizeof(sequor_admission));
  for (uint32_t i = 0; i < waiting->len; i++) ret->ptr[i] = sequor_defer();
  ret->len = sequor_admit(round, waiting, room->ptr, room->len, victims, ret->ptr);
  if (!ret->len) free(ret->ptr);
  exports_sequor_plugin_scheduler_columns_free(waiting);
  exports_sequor_plugin_scheduler_columns_free(victims);
  scheduler_plugin_list_u32_free(room);
}

void exports_sequor_plugin_scheduler_observe(sequor_events *events) {
  sequor_observe(events);
  exports_sequor_plugin_scheduler_events_free(events);
}

void exports_sequor_plugin_scheduler_save(scheduler_plugin_list_u8_t *ret) {
  ret->len = sequor_save(&ret->ptr);
}

bool exports_sequor_plugin_scheduler_restore(scheduler_plugin_list_u8_t *saved, scheduler_plugin_string_t *err) {
  const char *wrong = sequor_restore(saved->ptr, saved->len);
  if (wrong) fail(wrong, err);
  scheduler_plugin_list_u8_free(saved);
  return !wrong;
}

// === help ===

void sequor_log(uint32_t level, const char *message) {
  scheduler_plugin_string_t text = {(uint8_t *)message, strlen(message)};
  sequor_plugin_host_log(level, &text);
}

static scheduler_plugin_string_t text_of(const char *text) {
  return (scheduler_plugin_string_t){(uint8_t *)text, strlen(text)};
}

void sequor_metric_add(const char *name, const char *label, const char *text, double value) {
  scheduler_plugin_string_t counter = text_of(name);
  sequor_plugin_host_label_t one = {0};
  if (label) one = (sequor_plugin_host_label_t){text_of(label), text_of(text)};
  sequor_plugin_host_list_label_t labels = {&one, label ? 1 : 0};
  sequor_plugin_host_metric_add(&counter, &labels, value);
}

static void refuse(sequor_answer *answer, uint32_t candidate, uint32_t code, bool ends) {
  answer->reject[answer->rejected++] = (sequor_rejection){.candidate = candidate, .code = code, .ends = ends};
}

void sequor_reject_candidate(sequor_answer *answer, uint32_t candidate, uint32_t code) {
  refuse(answer, candidate, code, true);
}

void sequor_shed_candidate(sequor_answer *answer, uint32_t candidate, uint32_t code) {
  refuse(answer, candidate, code, false);
}

double sequor_number(const char *config, const char *name, double missing) {
  size_t len = strlen(name);
  int depth = 0;
  for (const char *at = config; *at; at++) {
    if (*at == '{' || *at == '[') depth++;
    if (*at == '}' || *at == ']') depth--;
    if (*at != '"') continue;
    const char *text = ++at;
    while (*at && *at != '"') at += *at == '\\' && at[1] ? 2 : 1;
    if (!*at) break;
    const char *colon = at + 1 + strspn(at + 1, " \t\r\n");
    if (depth == 1 && *colon == ':' && (size_t)(at - text) == len && !memcmp(text, name, len)) {
      char *end;
      double number = strtod(colon + 1, &end);
      return end == colon + 1 ? missing : number;
    }
  }
  return missing;
}

int sequor_key_column(const sequor_model *model, const char *feature) {
  for (size_t n = 0; n < model->keys.len; n++)
    if (model->keys.ptr[n].len == strlen(feature) && !memcmp(model->keys.ptr[n].ptr, feature, strlen(feature))) return (int)n;
  return -1;
}

uint64_t sequor_key_of(const char *text) {
  uint64_t key = 0xcbf29ce484222325;
  for (; *text; text++) key = (key ^ (uint8_t)*text) * 0x100000001b3;
  return key;
}

size_t sequor_batch(const sequor_round *round, const sequor_columns *ready, const uint32_t *order, size_t count, uint32_t *batch) {
  size_t taken = 0;
  uint32_t left = round->max_batch;
  uint64_t shape = 0;
  for (size_t n = 0; n < count && left; n++) {
    uint32_t i = order[n];
    uint32_t rows = ready->rows.is_some ? ready->rows.val.ptr[i] : 1;
    uint64_t of = ready->shape_key.is_some ? ready->shape_key.val.ptr[i] : 0;
    if (!taken) shape = of;
    if (of != shape || (taken && rows > left)) continue;
    batch[taken++] = i;
    left -= rows < left ? rows : left;
  }
  return taken;
}

sequor_admission sequor_take(uint32_t instance) {
  return (sequor_admission){.tag = EXPORTS_SEQUOR_PLUGIN_SCHEDULER_ADMISSION_TAKE, .val.take = instance};
}

sequor_admission sequor_evict(uint32_t victim) {
  return (sequor_admission){.tag = EXPORTS_SEQUOR_PLUGIN_SCHEDULER_ADMISSION_EVICT, .val.evict = victim};
}

sequor_admission sequor_defer(void) {
  return (sequor_admission){.tag = EXPORTS_SEQUOR_PLUGIN_SCHEDULER_ADMISSION_DEFER};
}

sequor_admission sequor_reject(uint32_t code) {
  return (sequor_admission){.tag = EXPORTS_SEQUOR_PLUGIN_SCHEDULER_ADMISSION_REJECT, .val.reject = code};
}

size_t sequor_in_order(size_t waiting, const uint32_t *room, size_t instances, sequor_admission *said) {
  uint32_t *left = room_for(instances, sizeof *left);
  for (uint32_t instance = 0; instance < instances; instance++) left[instance] = room[instance];
  size_t given = 0;
  for (; given < waiting; given++) {
    uint32_t best = 0;
    for (uint32_t instance = 1; instance < instances; instance++)
      if (left[instance] > left[best]) best = instance;
    if (!instances || !left[best]) break;
    left[best]--;
    said[given] = sequor_take(best);
  }
  free(left);
  return given;
}
