// The helpers of sequor.h, with no WebAssembly anywhere: what the contract's generated code would do is left out. Run by `cargo xtask test`.
#include "sequor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scheduler_plugin_string_dup(scheduler_plugin_string_t *ret, const char *s) { (void)ret, (void)s; }
void scheduler_plugin_string_free(scheduler_plugin_string_t *ptr) { (void)ptr; }
void scheduler_plugin_list_u32_free(scheduler_plugin_list_u32_t *ptr) { (void)ptr; }
void scheduler_plugin_list_u8_free(scheduler_plugin_list_u8_t *ptr) { (void)ptr; }
void exports_sequor_plugin_scheduler_columns_free(sequor_columns *ptr) { (void)ptr; }
void exports_sequor_plugin_scheduler_events_free(sequor_events *ptr) { (void)ptr; }
void sequor_plugin_host_log(uint32_t level, scheduler_plugin_string_t *message) { (void)level, (void)message; }
void sequor_plugin_host_metric_add(scheduler_plugin_string_t *name, sequor_plugin_host_list_label_t *labels, double value) {
  (void)name, (void)labels, (void)value;
}

static bool is(sequor_admission said, sequor_admission wanted) {
  return said.tag == wanted.tag && (said.tag == sequor_defer().tag || said.val.take == wanted.val.take);
}

static void free_slots_go_to_those_who_wait_longest(void) {
  sequor_admission said[5];
  uint32_t room[] = {1, 2};
  assert(sequor_in_order(5, room, 2, said) == 3);
  assert(is(said[0], sequor_take(1)) && is(said[1], sequor_take(0)) && is(said[2], sequor_take(1)));
  assert(sequor_in_order(1, room, 2, said) == 1 && is(said[0], sequor_take(1)));
  assert(sequor_in_order(1, NULL, 0, said) == 0 && sequor_in_order(0, room, 2, said) == 0);
}

// As the server asks, of a plug-in that does not say who gets a slot.
static void a_plug_in_without_admit_leaves_nobody_waiting_beside_a_free_slot(void) {
  sequor_round round = {.max_batch = 1};
  sequor_columns waiting = {.len = 3}, victims = {.len = 0};
  uint32_t free_ones[] = {0, 2};
  scheduler_plugin_list_u32_t room = {free_ones, 2};
  exports_sequor_plugin_scheduler_list_admission_t said;
  exports_sequor_plugin_scheduler_admit(&round, &waiting, &room, &victims, NULL, &said);
  assert(said.len == 2 && is(said.ptr[0], sequor_take(1)) && is(said.ptr[1], sequor_take(1)));
  assert(is(said.ptr[2], sequor_defer()));
  free(said.ptr);
}

static void each_answer_says_what_it_is(void) {
  assert(sequor_evict(7).tag == EXPORTS_SEQUOR_PLUGIN_SCHEDULER_ADMISSION_EVICT && sequor_evict(7).val.evict == 7);
  assert(sequor_reject(9).tag == EXPORTS_SEQUOR_PLUGIN_SCHEDULER_ADMISSION_REJECT && sequor_reject(9).val.reject == 9);
  sequor_rejection refused[2];
  sequor_answer answer = {.reject = refused};
  sequor_reject_candidate(&answer, 3, 7);
  sequor_shed_candidate(&answer, 1, 8);
  assert(answer.rejected == 2 && refused[0].candidate == 3 && refused[0].code == 7 && refused[0].ends && !refused[1].ends);
}

static void a_batch_is_of_one_shape_and_no_more_rows_than_it_may_have(void) {
  uint64_t shapes[] = {1, 2, 1, 1, 1};
  uint32_t rows[] = {2, 1, 3, 1, 1}, order[] = {4, 1, 2, 0, 3};
  sequor_columns ready = {.len = 5, .shape_key = {true, {shapes, 5}}, .rows = {true, {rows, 5}}};
  sequor_round round = {.max_batch = 4};
  assert(sequor_batch(&round, &ready, order, 5, order) == 2 && order[0] == 4 && order[1] == 2);
}

static void settings_are_read_by_their_names(void) {
  const char *config = "{\"weights\": {\"burst\": 9}, \"text\": \"a \\\"burst\\\": 8\", \"burst\" : 2.5, \"on\": true}";
  assert(sequor_number(config, "burst", 4) == 2.5 && sequor_number(config, "other", 4) == 4 && sequor_number(config, "on", 4) == 4);
  assert(sequor_key_of("") == 0xcbf29ce484222325 && sequor_key_of("a") == 0xaf63dc4c8601ec8c);
  scheduler_plugin_string_t names[] = {{(uint8_t *)"zone", 4}, {(uint8_t *)"tenant", 6}};
  sequor_model model = {.keys = {names, 2}};
  assert(sequor_key_column(&model, "tenant") == 1 && sequor_key_column(&model, "ten") == -1);
}

int main(void) {
  free_slots_go_to_those_who_wait_longest();
  a_plug_in_without_admit_leaves_nobody_waiting_beside_a_free_slot();
  each_answer_says_what_it_is();
  a_batch_is_of_one_shape_and_no_more_rows_than_it_may_have();
  settings_are_read_by_their_names();
  puts("the kit for C: 5 passed");
  return 0;
}
