// A collective in flight.
//
// ROUNDS. A collective takes one round, or several if its data passes through slots in windows. In
// a round a rank posts its entry, waits for the entries of those it exchanges with and compares,
// moves the data, and stores the round's number in `done`: it then reads nothing of that round any
// more. Peers' `done` frees places of the rings, and ends an operation whose buffers peers read.
//
// In a large all_reduce (kDirect) each rank reduces its share of the elements and writes it into
// all ranks' results, in a large reduce into the root's: a share has one reader and writer, so the
// results may lie over the inputs. All ranks exchange with all. A rank that fails meanwhile puts
// its result into quarantine (core/quarantine.h).
//
// JOBS. Where ranks share processors, what each rank would do of such an exchange of all with all
// is a job that any rank may take: core/collective_jobs.cc.
#ifndef OCCL_CORE_COLLECTIVE_OP_H_
#define OCCL_CORE_COLLECTIVE_OP_H_

#include <cstdint>

#include "occl/core/collective_spec.h"
#include "occl/core/comm.h"
#include "occl/core/op.h"

namespace occl {

class CollectiveOp final : public CommOp {
 public:
  explicit CollectiveOp(Ref<Comm> comm);
  // What it is to do, from `make`: Status(Comm&, CollectiveSpec*). Called once, before it is
  // issued; on an error the operation is good for nothing.
  template <typename Make>
  Status Specify(Make make) {
    Status status = make(comm(), &spec_);
    kind_ = spec_.kind;
    return status;
  }

 private:
  enum class Phase : uint8_t { kTurn, kPlace, kAgree, kMove, kReaders };

  StepResult Step() override;
  StepResult RunPhases();
  void Ring();
  void RingForEntry();
  void TellSleepers() override;
  void DoIssue() override { sequence_ = comm().NextCollective(); }
  void DoFinish(bool success) override;
  void Describe(occlOpRecord_t* record) const override;
  bool WaitsFor(int rank) const override;
  bool HoldsUp(int rank) const override;
  bool PeersAtWork() const override { return phase_ == Phase::kReaders || window_start_ > 0; }

  // Phases; each returns kMoved to go on, kWaiting, or kDone.
  StepResult WaitForPlace();
  StepResult Agree();
  StepResult Move();
  StepResult AwaitReaders();
  StepResult EndRound();

  // Jobs.
  bool HasJobs() const;
  StepResult TakeJob();
  bool NoJobTaken() const;
  void CallHelpers();
  StepResult EndJob();
  bool AllJobsDone();
  bool WaitsForJobOf(int rank) const;

  // Whether the reduction is shared out among the ranks; known once the path is.
  bool shared_out() const;
  bool Exchanges(int peer) const { return shared_out() || spec_.Exchanges(comm().rank(), peer); }
  // Whether `peer` reads this rank's buffers.
  bool ReadBy(int peer) const { return shared_out() || spec_.Reads(peer, comm().rank()); }
  bool HasResult(int rank) const { return spec_.flow == Flow::kAllToAll || rank == spec_.root; }
  // Whether peers write into this rank's result.
  bool writes_to_peers() const { return jobs_ || shared_out(); }
  bool ExchangesWithAll() const { return spec_.flow == Flow::kAllToAll || shared_out(); }
  void LeaveRound();
  DataPath ChoosePath() const;
  void Post();
  void Truncate(RoundHead* head);
  void FillWindow(unsigned char* slot);
  void KeepFactor(int rank, const void* factor);
  Status Compare(int peer, const RoundHead& head) const;
  Status CompareParts(int peer) const;

  // Where the part of `peer` that is meant for rank doer_ begins, window_start_ elements in, and
  // how many elements of this round it has; NULL data if the peer named memory outside its device.
  Part Source(int peer);
  StepResult CopyBlock();
  StepResult ReduceBlock();
  StepResult ReduceShareBlock();
  StepResult EndPart();
  StepResult LookBeforeWriting();
  unsigned char* Destination(int peer, uint64_t count) const;
  StepResult BadSource(int peer);
  // Of the result of `peer`, after skip_bytes; NULL if it named memory outside its device.
  unsigned char* Result(int peer, uint64_t skip_bytes, uint64_t size_bytes) const;

  CollectiveSpec spec_;  // constant after Specify
  uint64_t sequence_ = 0;
  uint64_t round_ = 0;
  Phase phase_ = Phase::kTurn;
  DataPath path_ = DataPath::kInline;
  bool ring_needed_ = false;  // words have been stored that sleepers have not been told of
  int polls_ = 0;             // since then
  bool jobs_ = false;         // the parts of all ranks are jobs
  bool agreed_more_ = false;  // an exchanged peer has another round
  bool own_more_ = false;
  int doer_ = 0;               // the rank whose part is being done; -1: none
  int jobs_seen_ = 0;          // from this rank's own on: taken by somebody
  int jobs_done_ = 0;          // from rank 0's on: done
  int peer_ = 0;               // cursor over ranks, in the running phase
  uint64_t window_start_ = 0;  // elements of each part that earlier rounds have moved
  uint64_t window_count_ = 0;  // elements of each part in this round
  uint64_t position_ = 0;      // elements moved of the part in hand
};

}  // namespace occl

#endif  // OCCL_CORE_COLLECTIVE_OP_H_
