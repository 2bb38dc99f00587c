// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <fermata/fermata.h>
