/* SPDX-License-Identifier: Apache-2.0 */
/* A type and a comment that C++98 does not have. */
#include <stdint.h>
typedef struct fermata_config {
  uint32_t struct_size;
  long long surplus;  // not C++98
} fermata_config;
