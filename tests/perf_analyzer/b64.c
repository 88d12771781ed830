/* Stands in for libb64, which perf_analyzer is linked to for the handles of CUDA memory over HTTP. No test has such memory: a program that calls
   this has left what is tested. */
#include <stdlib.h>

void base64_init_encodestate(void *state) { (void)state; abort(); }
void base64_init_decodestate(void *state) { (void)state; abort(); }
int base64_encode_block(const char *in, int length, char *out, void *state) { (void)in, (void)length, (void)out, (void)state; abort(); }
int base64_encode_blockend(char *out, void *state) { (void)out, (void)state; abort(); }
int base64_decode_block(const char *in, const int length, char *out, void *state) { (void)in, (void)length, (void)out, (void)state; abort(); }
