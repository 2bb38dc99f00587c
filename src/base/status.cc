// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstdarg>
#include <cstdio>

namespace fermata {
namespace {

std::string FormatV(const char* format, va_list arguments) {
  char text[512];
  const int wanted = std::vsnprintf(text, sizeof text, format, arguments);
  if (wanted < 0) return format;
  return text;  // Cut at 511 characters: the C ABI carries 239.
}

}  // namespace

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
  }
  return "UNKNOWN_STATUS";
}

const char* ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "NONE";
    case Reason::kNoSpace:
      return "NO_SPACE";
    case Reason::kQueueFull:
      return "QUEUE_FULL";
    case Reason::kQuota:
      return "QUOTA";
    case Reason::kWouldBlock:
      return "WOULD_BLOCK";
    case Reason::kTierSick:
      return "TIER_SICK";
    case Reason::kLeaseExpired:
      return "LEASE_EXPIRED";
    case Reason::kClosed:
      return "CLOSED";
    case Reason::kForked:
      return "FORKED";
    case Reason::kState:
      return "STATE";
    case Reason::kInUse:
      return "IN_USE";
    case Reason::kChecksum:
      return "CHECKSUM";
    case Reason::kTorn:
      return "TORN";
    case Reason::kBadHandle:
      return "BAD_HANDLE";
    case Reason::kBadLayout:
      return "BAD_LAYOUT";
  }
  return "UNKNOWN_REASON";
}

const std::string& Status::message() const {
  static const std::string* const empty = new std::string;
  return message_ ? *message_ : *empty;
}

std::string Status::ToString() const {
  std::string text = StatusCodeName(code_);
  if (reason_ != Reason::kNone) text.append("/").append(ReasonName(reason_));
  if (message_) text.append(": ").append(*message_);
  return text;
}

Status ErrorF(StatusCode code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string message = FormatV(format, arguments);
  va_end(arguments);
  return Status(code, std::move(message));
}

Status ReasonF(StatusCode code, Reason reason, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string message = FormatV(format, arguments);
  va_end(arguments);
  return Status(code, reason, std::move(message));
}

}  // namespace fermata
