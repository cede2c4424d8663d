// Point-to-point operations in flight. A send is complete when its receiver has read the data.
#ifndef OCCL_CORE_MESSAGE_OP_H_
#define OCCL_CORE_MESSAGE_OP_H_

#include <atomic>
#include <cstdint>

#include "occl/core/comm.h"
#include "occl/core/match.h"
#include "occl/core/op.h"

namespace occl {

// A buffer in the kernel range and what the ranks must agree on about it.
struct MessageSpec {
  unsigned char* data = nullptr;
  uint64_t count = 0;
  occlDataType_t datatype = occlBytes;
  uint32_t element_bytes = 1;
  int peer = 0;
  int tag = 0;
  uint64_t size_bytes() const { return count * element_bytes; }
};

class SendOp final : public CommOp {
 public:
  SendOp(Ref<Comm> comm, const MessageSpec& spec);

 private:
  StepResult Step() override;
  void DoIssue() override;
  void DoFinish(bool success) override;
  void Describe(occlOpRecord_t* record) const override;
  bool WaitsFor(int rank) const override { return rank == spec_.peer; }
  std::string TellUnmatched(Comm& comm) const override;
  bool PeersAtWork() const override;
  bool Post();
  StepResult PutChunks();  // staged

  const MessageSpec spec_;
  PendingSend pending_;
  uint64_t number_ = 0;    // among this rank's sends to the peer, in call order; for messages
  uint64_t sequence_ = 0;  // the posted message's; 0: not posted
  DataPath path_ = DataPath::kInline;
  uint64_t chunks_ = 0;  // staged: put so far
};

class RecvOp final : public CommOp {
 public:
  RecvOp(Ref<Comm> comm, const MessageSpec& spec);

 private:
  StepResult Step() override;
  void DoIssue() override;
  void DoFinish(bool success) override;
  void Describe(occlOpRecord_t* record) const override;
  bool WaitsFor(int rank) const override;
  std::string TellUnmatched(Comm& comm) const override;
  bool PeersAtWork() const override { return stage_claimed_; }
  void ReachSenders();
  Status Compare() const;
  StepResult CopyBlock();
  StepResult TakeChunks();  // staged
  StepResult EndMessage();

  const MessageSpec spec_;
  PendingRecv pending_;
  uint64_t number_ = 0;
  bool compared_ = false;
  bool stage_claimed_ = false;
  uint64_t chunks_ = 0;  // staged: taken so far
  uint64_t position_bytes_ = 0;
};

}  // namespace occl

#endif  // OCCL_CORE_MESSAGE_OP_H_
