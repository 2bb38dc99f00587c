/* SPDX-License-Identifier: Apache-2.0 */
/* A library that lets a helper out and lacks a listed function. */
__attribute__((visibility("default"))) int fermata_version(void);
__attribute__((visibility("default"))) int leaked_helper(void);
int fermata_version(void) { return 0; }
int leaked_helper(void) { return 0; }
