/* SPDX-License-Identifier: Apache-2.0 */
/* Forgets to ask for its macro. */
#include <fermata/fermata.h>
