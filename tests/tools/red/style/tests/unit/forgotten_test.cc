// SPDX-License-Identifier: Apache-2.0
int nobody_builds_this;
