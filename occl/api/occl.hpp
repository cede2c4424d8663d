// OCCL for C++20: handles that free themselves, spans instead of pointer and count, exceptions
// instead of codes. Header-only, on top of occl.h, whose contract holds: units, stream order,
// in-place rules, who may call what when.
//
// Exceptions are thrown in the caller's own code; none passes through the library.
//   occl::Communicator comm(nranks, id, rank);
//   occl::DeviceBuffer<float> gradients(1 << 20);
//   comm.AllReduce(gradients.span(), gradients.span(), occlAvg, {.stream = stream});
#ifndef OCCL_API_OCCL_HPP_
#define OCCL_API_OCCL_HPP_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "occl/api/occl.h"
#include "occl/api/occl_handles.hpp"

namespace occl {
inline namespace hpp {

// How an operation is issued.
struct Call {
  orStream_t stream = nullptr;     // the default stream of the communicator's device
  int64_t timeout_ms = INT64_MIN;  // the communicator's
  bool async = false;              // not begun on the calling thread
  Request* request = nullptr;      // takes the operation's handle
};

struct Config {
  int64_t timeout_ms = INT64_MIN;       // default: 30 minutes
  int64_t init_timeout_ms = INT64_MIN;  // default: 5 minutes
  std::string name{};
  int device = -1;        // the current one
  std::string members{};  // occlConfig_t's
};

inline occlUniqueId GetUniqueId() {
  occlUniqueId id;
  Check(occlGetUniqueId(&id));
  return id;
}

// Calls body; the operations that it issues go out together at the end. If it throws, the group is
// closed and the exception goes on.
template <class Body>
void Group(Body&& body) {
  Check(occlGroupStart());
  try {
    std::forward<Body>(body)();
  } catch (...) {
    static_cast<void>(occlGroupEnd());
    throw;
  }
  Check(occlGroupEnd());
}

class Communicator {
 public:
  Communicator() = default;
  Communicator(int nranks, const occlUniqueId& id, int rank, const Config& config = {}) {
    const occlConfig_t c = ToC(config);
    Check(occlCommInitRank(&comm_, nranks, id, rank, &c));
  }
  Communicator(int nranks, int rank, const occlStore_t& store, const Config& config = {}) {
    const occlConfig_t c = ToC(config);
    Check(occlCommInitRankStore(&comm_, nranks, rank, &store, &c));
  }
  // Takes over a handle of the C API.
  explicit Communicator(occlComm_t comm) : comm_(comm) {}
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() { static_cast<void>(occlCommDestroy(comm_)); }

  explicit operator bool() const { return comm_ != nullptr; }
  occlComm_t get() const { return comm_; }
  int rank() const { return Get(occlCommUserRank); }
  int size() const { return Get(occlCommCount); }
  int device() const { return Get(occlCommDevice); }

  // Empty for a rank that gives OCCL_SPLIT_NOCOLOR.
  Communicator Split(int color, int key, const Config& config = {}) const {
    const occlConfig_t c = ToC(config);
    occlComm_t made = nullptr;
    Check(occlCommSplit(comm_, color, key, &made, &c), comm_);
    return Communicator(made);
  }
  Communicator Shrink(std::span<const int> excluded, int flags = OCCL_SHRINK_DEFAULT,
                      const Config& config = {}) const {
    const occlConfig_t c = ToC(config);
    occlComm_t made = nullptr;
    Check(
        occlCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &made, &c, flags),
        comm_);
    return Communicator(made);
  }
  void Finalize() const { Check(occlCommFinalize(comm_), comm_); }
  void Abort(const char* reason = nullptr) const { Check(occlCommAbort(comm_, reason)); }
  // occlSuccess while the communicator is good.
  occlResult_t AsyncError() const {
    occlResult_t error = occlSuccess;
    Check(occlCommGetAsyncError(comm_, &error));
    return error;
  }

  template <Element T>
  void AllReduce(Input<T> send, std::span<T> recv, occlRedOp_t op = occlSum,
                 const Call& call = {}) const {
    Same("AllReduce", send.size(), recv.size());
    Issue(call, [&](auto* o) {
      return occlAllReduce(send.data(), recv.data(), recv.size(), kDataType<T>, op, comm_,
                           call.stream, o);
    });
  }
  // `send` may be empty on other ranks than root.
  template <Element T>
  void Broadcast(Input<T> send, std::span<T> recv, int root, const Call& call = {}) const {
    if (rank() == root) Same("Broadcast", send.size(), recv.size());
    Issue(call, [&](auto* o) {
      return occlBroadcast(send.data(), recv.data(), recv.size(), kDataType<T>, root, comm_,
                           call.stream, o);
    });
  }
  // `recv` may be empty on other ranks than root.
  template <Element T>
  void Reduce(Input<T> send, std::span<T> recv, occlRedOp_t op, int root,
              const Call& call = {}) const {
    if (rank() == root) Same("Reduce", send.size(), recv.size());
    Issue(call, [&](auto* o) {
      return occlReduce(send.data(), recv.data(), send.size(), kDataType<T>, op, root, comm_,
                        call.stream, o);
    });
  }
  template <Element T>
  void AllGather(Input<T> send, std::span<T> recv, const Call& call = {}) const {
    Same("AllGather", send.size() * Ranks(), recv.size());
    Issue(call, [&](auto* o) {
      return occlAllGather(send.data(), recv.data(), send.size(), kDataType<T>, comm_, call.stream,
                           o);
    });
  }
  // recv[r] takes what rank r sends.
  template <Element T>
  void AllGatherv(Input<T> send, std::span<const std::span<T>> recv, const Call& call = {}) const {
    Same("AllGatherv", Ranks(), recv.size());
    const Parts parts(recv);
    Issue(call, [&](auto* o) {
      return occlAllGatherv(send.data(), parts.pointers.data(), parts.counts.data(), kDataType<T>,
                            comm_, call.stream, o);
    });
  }
  template <Element T>
  void ReduceScatter(Input<T> send, std::span<T> recv, occlRedOp_t op = occlSum,
                     const Call& call = {}) const {
    Same("ReduceScatter", send.size(), recv.size() * Ranks());
    Issue(call, [&](auto* o) {
      return occlReduceScatter(send.data(), recv.data(), recv.size(), kDataType<T>, op, comm_,
                               call.stream, o);
    });
  }
  // The reduction of what all ranks give as send[r] goes to rank r; sizes equal on all ranks.
  template <Element T>
  void ReduceScatterv(std::span<const std::type_identity_t<std::span<const T>>> send,
                      std::span<T> recv, occlRedOp_t op = occlSum, const Call& call = {}) const {
    Same("ReduceScatterv", Ranks(), send.size());
    Same("ReduceScatterv", send[static_cast<size_t>(rank())].size(), recv.size());
    const Parts from(send);
    Issue(call, [&](auto* o) {
      return occlReduceScatterv(from.pointers.data(), recv.data(), from.counts.data(), kDataType<T>,
                                op, comm_, call.stream, o);
    });
  }
  // `recv` may be empty on other ranks than root.
  template <Element T>
  void Gather(Input<T> send, std::span<T> recv, int root, const Call& call = {}) const {
    if (rank() == root) Same("Gather", send.size() * Ranks(), recv.size());
    Issue(call, [&](auto* o) {
      return occlGather(send.data(), recv.data(), send.size(), kDataType<T>, root, comm_,
                        call.stream, o);
    });
  }
  // recv[r] takes what rank r sends; it may be empty on other ranks than root.
  template <Element T>
  void Gatherv(Input<T> send, std::span<const std::span<T>> recv, int root,
               const Call& call = {}) const {
    if (rank() == root) Same("Gatherv", Ranks(), recv.size());
    const Parts to(recv);
    Issue(call, [&](auto* o) {
      return occlGatherv(send.data(), send.size(), to.pointers.data(), to.counts.data(),
                         kDataType<T>, root, comm_, call.stream, o);
    });
  }
  // `send` may be empty on other ranks than root.
  template <Element T>
  void Scatter(Input<T> send, std::span<T> recv, int root, const Call& call = {}) const {
    if (rank() == root) Same("Scatter", send.size(), recv.size() * Ranks());
    Issue(call, [&](auto* o) {
      return occlScatter(send.data(), recv.data(), recv.size(), kDataType<T>, root, comm_,
                         call.stream, o);
    });
  }
  // send[r] goes to rank r; it may be empty on other ranks than root.
  template <Element T>
  void Scatterv(std::span<const std::type_identity_t<std::span<const T>>> send, std::span<T> recv,
                int root, const Call& call = {}) const {
    if (rank() == root) Same("Scatterv", Ranks(), send.size());
    const Parts from(send);
    Issue(call, [&](auto* o) {
      return occlScatterv(from.pointers.data(), from.counts.data(), recv.data(), recv.size(),
                          kDataType<T>, root, comm_, call.stream, o);
    });
  }
  template <Element T>
  void AllToAll(Input<T> send, std::span<T> recv, const Call& call = {}) const {
    Same("AllToAll", send.size(), recv.size());
    Same("AllToAll", send.size() % Ranks(), 0);
    Issue(call, [&](auto* o) {
      return occlAllToAll(send.data(), recv.data(), send.size() / Ranks(), kDataType<T>, comm_,
                          call.stream, o);
    });
  }
  // send[r] goes to rank r, recv[r] takes what comes from it.
  template <Element T>
  void AllToAllv(std::span<const std::type_identity_t<std::span<const T>>> send,
                 std::span<const std::span<T>> recv, const Call& call = {}) const {
    Same("AllToAllv", Ranks(), send.size());
    Same("AllToAllv", Ranks(), recv.size());
    const Parts from(send), to(recv);
    Issue(call, [&](auto* o) {
      return occlAllToAllv(from.pointers.data(), from.counts.data(), to.pointers.data(),
                           to.counts.data(), kDataType<T>, comm_, call.stream, o);
    });
  }
  template <Element T>
  void Send(std::span<T> send, int peer, int tag = 0, const Call& call = {}) const {
    Issue(call, [&](auto* o) {
      return occlSend(send.data(), send.size(), kDataType<T>, peer, tag, comm_, call.stream, o);
    });
  }
  template <Element T>
  void Recv(std::span<T> recv, int peer, int tag = 0, const Call& call = {}) const {
    Issue(call, [&](auto* o) {
      return occlRecv(recv.data(), recv.size(), kDataType<T>, peer, tag, comm_, call.stream, o);
    });
  }
  void Barrier(const Call& call = {}) const {
    Issue(call, [&](auto* o) { return occlBarrier(comm_, call.stream, o); });
  }

 private:
  // Pointers and counts of parts, as the C API takes them.
  template <class T>
  struct Parts {
    explicit Parts(std::span<const std::span<T>> spans) {
      for (const std::span<T>& part : spans) {
        pointers.push_back(part.data());
        counts.push_back(part.size());
      }
    }
    std::vector<std::conditional_t<std::is_const_v<T>, const void*, void*>> pointers;
    std::vector<size_t> counts;
  };

  static occlConfig_t ToC(const Config& config) {
    occlConfig_t c = OCCL_CONFIG_INITIALIZER;
    c.timeout_ms = config.timeout_ms;
    c.initTimeout_ms = config.init_timeout_ms;
    c.name = config.name.empty() ? nullptr : config.name.c_str();
    c.device = config.device;
    c.members = config.members.c_str();
    return c;
  }
  static void Same(const char* operation, size_t expected, size_t found) {
    if (expected == found) [[likely]]
      return;
    throw CallError(occlInvalidArgument, std::string(operation) + ": expected " +
                                             std::to_string(expected) + ", found " +
                                             std::to_string(found) + " elements or parts");
  }
  size_t Ranks() const { return static_cast<size_t>(size()); }
  int Get(occlResult_t (*query)(occlComm_t, int*)) const {
    int value = -1;
    Check(query(comm_, &value));
    return value;
  }
  template <class CallC>
  void Issue(const Call& call, CallC&& issue) const {
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.timeout_ms = call.timeout_ms;
    options.flags = call.async ? OCCL_CALL_ASYNC : OCCL_CALL_DEFAULT;
    options.request = call.request != nullptr ? call.request->Place() : nullptr;
    Check(issue(&options), comm_);
  }

  occlComm_t comm_ = nullptr;
};

}  // namespace hpp
}  // namespace occl

#endif  // OCCL_API_OCCL_HPP_
