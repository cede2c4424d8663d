// The handles of occl.hpp that know no communicator: errors, datatypes, buffers, requests.
#ifndef OCCL_API_OCCL_HANDLES_HPP_
#define OCCL_API_OCCL_HANDLES_HPP_

#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "occl/api/occl.h"

namespace occl {
// A namespace of its own: the names are the user's, whatever the library calls its insides.
inline namespace hpp {

// A failed call: its code, and the library's sentence.
class CallError : public std::runtime_error {
 public:
  CallError(occlResult_t result, const std::string& message)
      : std::runtime_error(std::string(occlGetErrorString(result)) + ": " + message),
        result_(result) {}
  occlResult_t result() const { return result_; }

 private:
  occlResult_t result_;
};

inline void Check(occlResult_t result, occlComm_t comm = nullptr) {
  if (result == occlSuccess) [[likely]]
    return;
  std::string message = occlGetLastError(nullptr);
  if (message.empty() && comm != nullptr) message = occlGetLastError(comm);
  throw CallError(result, message);
}

// The datatype of a C++ type. Specialise it for 16-bit and 8-bit float classes of your own.
template <class T>
struct DataTypeOf;
#define OCCL_HPP_DATATYPE(type, value) \
  template <>                          \
  struct DataTypeOf<type> : std::integral_constant<occlDataType_t, value> {}
OCCL_HPP_DATATYPE(int8_t, occlInt8);
OCCL_HPP_DATATYPE(uint8_t, occlUint8);
OCCL_HPP_DATATYPE(int16_t, occlInt16);
OCCL_HPP_DATATYPE(uint16_t, occlUint16);
OCCL_HPP_DATATYPE(int32_t, occlInt32);
OCCL_HPP_DATATYPE(uint32_t, occlUint32);
OCCL_HPP_DATATYPE(int64_t, occlInt64);
OCCL_HPP_DATATYPE(uint64_t, occlUint64);
OCCL_HPP_DATATYPE(float, occlFloat32);
OCCL_HPP_DATATYPE(double, occlFloat64);
OCCL_HPP_DATATYPE(bool, occlBool);
OCCL_HPP_DATATYPE(std::complex<float>, occlComplex64);
OCCL_HPP_DATATYPE(std::complex<double>, occlComplex128);
OCCL_HPP_DATATYPE(std::byte, occlBytes);
#undef OCCL_HPP_DATATYPE

template <class T>
inline constexpr occlDataType_t kDataType = DataTypeOf<std::remove_const_t<T>>::value;
template <class T>
concept Element = requires { DataTypeOf<std::remove_const_t<T>>::value; };

// What is sent: as std::span<const T>, without taking part in the deduction of T.
template <class T>
using Input = std::span<const std::type_identity_t<T>>;

// Device memory for communication, of the device that is current at construction. The host cannot
// read it: orMemcpy does.
template <Element T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : count_(count) {
    void* data = nullptr;
    Check(occlMemAlloc(&data, count * sizeof(T)));
    data_ = static_cast<T*>(data);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) static_cast<void>(occlMemFree(data_));
  }
  T* data() const { return data_; }
  size_t size() const { return count_; }
  std::span<T> span() const { return {data_, count_}; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

// An operation's handle. Frees itself; the operation goes on.
class Request {
 public:
  Request() = default;
  Request(Request&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Request& operator=(Request&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Request() {
    if (handle_ != nullptr) static_cast<void>(occlRequestFree(handle_));
  }
  explicit operator bool() const { return handle_ != nullptr; }
  occlRequest_t get() const { return handle_; }

  bool Test() const {
    int done = 0;
    Check(occlRequestTest(handle_, &done));
    return done != 0;
  }
  // Throws what the operation failed with, or occlTimeout when only this wait's time is over.
  void Wait(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1)) const {
    const occlResult_t result = occlRequestWait(handle_, timeout.count());
    if (result == occlSuccess) return;
    occlResult_t of_operation = occlSuccess;
    const char* message = "";
    Check(occlRequestGetResult(handle_, &of_operation, &message));
    throw CallError(result, of_operation == occlInProgress ? "the operation still runs" : message);
  }
  // Sender of a completed receive.
  int Source() const {
    int source = -1;
    Check(occlRequestGetSource(handle_, &source));
    return source;
  }
  // For Call::request: a place for a new handle.
  occlRequest_t* Place() {
    *this = Request();
    return &handle_;
  }

 private:
  occlRequest_t handle_ = nullptr;
};

}  // namespace hpp
}  // namespace occl

#endif  // OCCL_API_OCCL_HANDLES_HPP_
