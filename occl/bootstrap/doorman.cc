#include "occl/bootstrap/doorman.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "occl/base/poll_all.h"
#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

constexpr int64_t kHelloTimeout_ms = 2000;  // from connect to hello
constexpr size_t kMaxStrangers = 64;
constexpr int kMostAtOnce = 256;  // before the lock is let go
constexpr int kRound_ms = 200;
constexpr int64_t kIdle_ms = 1000;
// So long somebody waits at a door for want of descriptors, and then the group fails.
constexpr int64_t kShortage_ms = 300;
constexpr useconds_t kShortagePause_us = 20'000;

}  // namespace

bool AllLetIn(ControlSegment* segment) {
  for (int r = 0; r < segment->nranks(); ++r) {
    const RankBlock& block = segment->rank(r);
    if (block.let_in.load(std::memory_order_acquire) == 0 &&
        block.joined.load(std::memory_order_acquire) == 0 && !HasLeft(block)) {
      return false;
    }
  }
  return true;
}

Doorman& Doorman::Get() {
  static Doorman* const doorman = new Doorman;  // outlives every thread
  return *doorman;
}

Doorman::Doorman() {
  pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                 [] {
                   Get().ForgetAll();
                   Get().mutex_.unlock();
                 });
}

// In a forked child: its copies would keep the sockets open when this process has gone.
void Doorman::ForgetAll() {
  for (auto& [id, door] : doors_) {
    door->listener.Reset();
    door->file.Reset();
    for (Stranger& stranger : door->strangers) stranger.socket.Reset();
    static_cast<void>(door.release());  // it holds a mapping that the child does not have
  }
  doors_.clear();
  epoll_.Reset();
  spare_.Reset();
  running_ = false;
}

Status Doorman::Start() {
  if (running_) return Status();
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return SystemError(errno, "epoll_create for those who let ranks in");
  UniqueFd spare(fcntl(epoll.get(), F_DUPFD_CLOEXEC, 0));
  if (!spare.valid()) return SystemError(errno, "a descriptor for those who let ranks in");
  epoll_ = std::move(epoll);
  spare_ = std::move(spare);
  try {
    // Nobody joins it: it uses nothing but this object.
    std::thread([this] { Run(); }).detach();
  } catch (const std::system_error& error) {
    epoll_.Reset();
    spare_.Reset();
    return SystemError(error.code().value(), "starting the thread that lets ranks in");
  }
  running_ = true;
  return Status();
}

Status Doorman::Keep(std::unique_ptr<Door>* door, uint64_t* id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OCCL_RETURN_IF_ERROR(Start());
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLEXCLUSIVE;
  event.data.u64 = next_id_;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, (*door)->listener.get(), &event) != 0) {
    return SystemError(errno, "watching a bootstrap socket");
  }
  *id = next_id_++;
  doors_[*id] = std::move(*door);
  return Status();
}

void Doorman::Close(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = doors_.find(id);
  if (found != doors_.end()) Remove(found);
}

// Other processes may have the same socket: closing it here does not end the watch on it.
Doorman::Doors::iterator Doorman::Remove(Doors::iterator door) {
  static_cast<void>(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door->second->listener.get(), nullptr));
  return doors_.erase(door);
}

void Doorman::Retire(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = doors_.find(id);
  if (found == doors_.end()) return;
  if (AllLetIn(found->second->segment.get())) {
    Remove(found);
  } else {
    found->second->retired = true;
    found->second->end = Deadline::After(kGrace_ms);
  }
}

void Doorman::Run() {
  while (RunOnce()) {
  }
}

bool Doorman::RunOnce() {
  epoll_event events[16];
  // The descriptor is this thread's to close.
  const int got = epoll_wait(epoll_.get(), events, std::size(events), kRound_ms);
  std::unique_lock<std::mutex> lock(mutex_);
  short_ = false;
  if (!spare_.valid()) spare_ = UniqueFd(fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0));
  for (int i = 0; i < got; ++i) {
    const auto found = doors_.find(events[i].data.u64);
    if (found != doors_.end() && !Serve(found->first, found->second.get())) Remove(found);
  }
  if (next_round_.Passed() || got <= 0) {
    for (auto door = doors_.begin(); door != doors_.end();) {
      door = Serve(door->first, door->second.get()) ? std::next(door) : Remove(door);
    }
    next_round_ = Deadline::After(kRound_ms);
  }
  if (!doors_.empty()) {
    idle_end_ = Deadline::After(kIdle_ms);
  } else if (idle_end_.Passed()) {
    epoll_.Reset();
    spare_.Reset();
    running_ = false;
    return false;
  }
  const bool pauses = short_;
  lock.unlock();
  if (pauses) usleep(kShortagePause_us);  // the socket stays readable
  return true;
}

bool Doorman::Serve(uint64_t id, Door* door) {
  std::vector<pollfd> polls;
  for (const Stranger& stranger : door->strangers) {
    polls.push_back({stranger.socket.get(), POLLIN, 0});
  }
  if (!polls.empty()) static_cast<void>(PollAll(&polls, 0));
  std::vector<Stranger> remaining;
  for (size_t i = 0; i < polls.size(); ++i) {
    if (polls[i].revents != 0) {
      Answer(door, door->strangers[i].socket);
    } else if (!door->strangers[i].deadline.Passed()) {
      remaining.push_back(std::move(door->strangers[i]));
    }
  }
  door->strangers = std::move(remaining);
  AcceptAll(id, door);
  return !AllLetIn(door->segment.get()) && !door->end.Passed();
}

void Doorman::AcceptAll(uint64_t id, Door* door) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    UniqueFd socket = Accept(door);
    if (!socket.valid()) return;
    if (Readable(socket)) {  // as a rule: who comes says hello at once
      Answer(door, socket);
      continue;
    }
    // Whoever is turned away without an answer comes again.
    if (door->strangers.size() >= kMaxStrangers) door->strangers.erase(door->strangers.begin());
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = id;
    // Without it, the next round does.
    static_cast<void>(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event));
    door->strangers.push_back({std::move(socket), Deadline::After(kHelloTimeout_ms)});
  }
}

// One who waits at the door; invalid: nobody, or who cannot be taken.
UniqueFd Doorman::Accept(Door* door) {
  while (true) {
    Status shortage;
    UniqueFd socket = AcceptSameUser(door->listener, &shortage);
    if (socket.valid()) door->is_short = false;
    if (shortage.ok()) return socket;
    // The kernel says so before it looks whether anybody waits.
    if (!Readable(door->listener)) {
      door->is_short = false;
      return UniqueFd();
    }
    if (!MakeRoom(door, shortage)) return UniqueFd();
  }
}

// Gives up a descriptor for the one who waits. False: there is none.
bool Doorman::MakeRoom(Door* door, const Status& shortage) {
  if (!door->strangers.empty()) {
    door->strangers.erase(door->strangers.begin());
    return true;
  }
  if (spare_.valid()) {
    spare_.Reset();
    return true;
  }
  short_ = true;
  if (door->retired) {
    door->end = Deadline::After(0);  // others may have more
    return false;
  }
  if (!door->is_short) {
    door->is_short = true;
    door->patience = Deadline::After(kShortage_ms);
    return false;
  }
  if (!door->patience.Passed() || !door->file.valid()) return false;
  door->failure = Error(shortage.code(), "init of %s: rank %d (pid %d) cannot let others in: %s",
                        door->name.c_str(), door->card.rank, static_cast<int>(getpid()),
                        shortage.message().c_str());
  door->fail(door->failure);
  door->file.Reset();  // nobody gets it any more
  return true;
}

// Whoever sends anything but a hello with the right secret is turned away.
void Doorman::Answer(Door* door, const UniqueFd& socket) {
  Hello hello;
  const Status got = ReceiveMessage(socket, &hello, sizeof(hello), nullptr, Deadline::After(0));
  if (!got.ok() || hello.magic != kBootstrapMagic || !SameSecret(hello.secret, door->secret)) {
    return;
  }
  if (door->failure.ok()) {
    door->failure = CheckAgreement(door->name.c_str(), door->card, hello.card);
    if (!door->failure.ok()) door->fail(door->failure);  // for all: they wait for a rank like this
  }
  Status refusal = door->failure;
  if (refusal.ok()) refusal = LetIn(door, hello, socket);
  if (refusal.ok()) return;
  const Notice notice = MakeNotice(refusal);
  static_cast<void>(SendMessage(socket, &notice, sizeof(notice), {}, Deadline::After(0)).ok());
}

Status Doorman::LetIn(Door* door, const Hello& hello, const UniqueFd& socket) {
  const RankCard& card = hello.card;
  uint64_t nobody = 0;
  const bool is_rank = card.rank >= 0 && card.rank < door->segment->nranks() && hello.attempt != 0;
  RankBlock* const block = is_rank ? &door->segment->rank(card.rank) : nullptr;
  // One attempt of one process to come, even if it has to ask twice.
  if (block == nullptr || block->joined.load(std::memory_order_acquire) != 0 ||
      (!block->let_in.compare_exchange_strong(nobody, hello.attempt, std::memory_order_acq_rel) &&
       nobody != hello.attempt)) {
    return Error(occlMismatch, "init of %s: a second process (pid %lld) says it is rank %d",
                 door->name.c_str(), static_cast<long long>(card.pid), card.rank);
  }
  const Notice welcome = MakeNotice(Status());
  const Status sent = SendMessage(socket, &welcome, sizeof(welcome),
                                  {door->file.get(), door->listener.get()}, Deadline::After(0));
  uint64_t attempt = hello.attempt;
  if (!sent.ok()) block->let_in.compare_exchange_strong(attempt, 0, std::memory_order_acq_rel);
  return Status();
}

}  // namespace occl
