// SPDX-License-Identifier: Apache-2.0
//
// Outcome is what a call of the C ABI answered; IsOk and IsError are matchers for it that print
// names instead of numbers.
#pragma once

#include <fermata/fermata.h>
#include <gmock/gmock.h>

#include <ostream>
#include <string>

namespace fermata_test {

struct Outcome {
  fermata_status status = FERMATA_OK;
  uint32_t reason = FERMATA_REASON_NONE;
  std::string message;
  bool ok() const { return status == FERMATA_OK; }
};

inline void PrintTo(const Outcome& outcome, std::ostream* os) {
  *os << fermata_status_name(outcome.status) << "/" << fermata_reason_name(outcome.reason) << ": "
      << outcome.message;
}

MATCHER(IsOk, "is OK") { return arg.status == FERMATA_OK; }

MATCHER_P2(IsError, status, reason,
           std::string("is ") + fermata_status_name(status) + "/" + fermata_reason_name(reason)) {
  return arg.status == status && arg.reason == reason;
}

MATCHER_P(HasStatus, status, std::string("is ") + fermata_status_name(status)) {
  return arg.status == status;
}

}  // namespace fermata_test
