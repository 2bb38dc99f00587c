// SPDX-License-Identifier: Apache-2.0
//
// Status is the answer of everything that the world can make fail: a canonical code, the stable
// Reason of the C ABI, and a sentence. It is not absl::Status because the reason is half of our
// contract (docs/adr/0001) and because Debian's Abseil is not instrumented for TSan.
//
// Cost: an OK status is one word and allocates nothing; an error owns one string.
// Thread safety: a value; distinct objects are independent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace fermata {

enum class StatusCode : int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

enum class Reason : uint32_t {
  kNone = 0,
  kNoSpace = 1,
  kQueueFull = 2,
  kQuota = 3,
  kWouldBlock = 10,
  kTierSick = 11,
  kLeaseExpired = 20,
  kClosed = 21,
  kForked = 22,
  kState = 23,
  kInUse = 24,
  kChecksum = 30,
  kTorn = 31,
  kBadHandle = 40,
  kBadLayout = 41,
};

const char* StatusCodeName(StatusCode code);
const char* ReasonName(Reason reason);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, Reason reason, std::string message)
      : code_(code),
        reason_(reason),
        message_(code == StatusCode::kOk ? nullptr
                                         : std::make_unique<std::string>(std::move(message))) {}
  Status(StatusCode code, std::string message) : Status(code, Reason::kNone, std::move(message)) {}

  Status(const Status& other)
      : code_(other.code_),
        reason_(other.reason_),
        message_(other.message_ ? std::make_unique<std::string>(*other.message_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) *this = Status(other);
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  Reason reason() const { return reason_; }
  const std::string& message() const;
  std::string ToString() const;  // "RESOURCE_EXHAUSTED/NO_SPACE: want 8, free 3 of 64"

 private:
  StatusCode code_ = StatusCode::kOk;
  Reason reason_ = Reason::kNone;
  std::unique_ptr<std::string> message_;
};

// printf-style builders, checked by the compiler.
[[gnu::format(printf, 2, 3)]] Status ErrorF(StatusCode code, const char* format, ...);
[[gnu::format(printf, 3, 4)]] Status ReasonF(StatusCode code, Reason reason, const char* format,
                                             ...);

// A value, or why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) { FERMATA_CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() {
    FERMATA_CHECK(ok());
    return *value_;
  }
  const T& value() const {
    FERMATA_CHECK(ok());
    return *value_;
  }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define FERMATA_RETURN_IF_ERROR(expression)                            \
  do {                                                                 \
    ::fermata::Status fermata_status_of_line_ = (expression);          \
    if (!fermata_status_of_line_.ok()) return fermata_status_of_line_; \
  } while (false)

}  // namespace fermata
