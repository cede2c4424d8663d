// What a stranger, or a rank that has gone mad, may send while a communicator is made: to rank 0,
// to another rank, to one that lets others in, to one that comes, to the process that serves a
// unique id; and ids that are none.
//
// Input: one byte that chooses whom, then messages: two bytes of length, one of flags, the bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "occl/bootstrap/keeper.h"
#include "occl/bootstrap/local_socket.h"
#include "occl/bootstrap/rendezvous.h"
#include "occl/bootstrap/unique_id.h"
#include "occl/bootstrap/unique_id_messages.h"

namespace occl {
namespace {

constexpr int kRanks = 3;
constexpr int kMaxMessages = 16;
constexpr int64_t kDeadline_ms = 3;

// Makes parts of a message right, so that what lies behind the check is reached.
enum Flags : uint8_t {
  kRightSize = 1,
  kRightHead = 2,
  kRightCard = 4,
  kOnNewSocket = 8,
  kWithSegment = 16,
  kWithOtherFile = 32,
  kWithListener = 64
};

struct Message {
  uint8_t flags;
  std::vector<unsigned char> bytes;
};

std::vector<Message> ReadMessages(const uint8_t* data, size_t size) {
  std::vector<Message> messages;
  while (size >= 3 && messages.size() < kMaxMessages) {
    const size_t length = std::min<size_t>(data[0] | data[1] << 8, size - 3);
    messages.push_back({data[2], {data + 3, data + 3 + length}});
    data += 3 + length;
    size -= 3 + length;
  }
  return messages;
}

template <typename T>
T* Shaped(std::vector<unsigned char>* bytes, uint8_t flags) {
  if ((flags & kRightSize) != 0) bytes->resize(sizeof(T));
  return bytes->size() >= sizeof(T) ? reinterpret_cast<T*>(bytes->data()) : nullptr;
}

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not true: %s\n", what);
  std::abort();
}

// Sends to whoever listens at the address, from within the call that tells the address.
class Strangers {
 public:
  void SendHellos(const LeaderInfo& info, std::vector<Message> messages) {
    for (Message& message : messages) {
      if (Hello* hello = Shaped<Hello>(&message.bytes, message.flags)) {
        if ((message.flags & kRightHead) != 0) {
          hello->magic = kBootstrapMagic;
          hello->secret = info.secret;
        }
        if ((message.flags & kRightCard) != 0) {
          hello->attempt |= 1;
          hello->card.version = OCCL_VERSION;
          hello->card.nranks = info.nranks;
          hello->card.members = {};
          hello->card.rank = 1 + static_cast<int>(sockets_.size()) % (info.nranks - 1);
        }
      }
      Send(info.socket_name, message, message.bytes);
    }
  }

  void Send(const std::string& name, const Message& message,
            const std::vector<unsigned char>& bytes) {
    if (sockets_.empty() || (message.flags & kOnNewSocket) != 0) {
      UniqueFd socket;
      if (!Connect(name, &socket).ok()) return;
      sockets_.push_back(std::move(socket));
    }
    static_cast<void>(
        SendMessage(sockets_.back(), bytes.data(), bytes.size(), {}, Deadline::After(0)).ok());
  }

 private:
  std::vector<UniqueFd> sockets_;
};

class FuzzMeeting final : public Meeting {
 public:
  explicit FuzzMeeting(std::vector<Message> messages) : messages_(std::move(messages)) {}

  void ChooseAddress(LeaderInfo* info) override { ChooseRandomAddress(info); }
  Status Publish(const LeaderInfo& info) override {
    strangers_.SendHellos(info, messages_);
    return Status();
  }
  Status Find(LeaderInfo* info, const Deadline&) override {
    *info = found;
    return Status();
  }
  void ReportFailure(const LeaderInfo&, const Status&) override {}
  Status CheckFailure(const LeaderInfo&) override { return Status(); }
  Status ComesFirst(bool* first, bool* some_left) override {
    *first = true;
    *some_left = false;
    return Status();
  }

  LeaderInfo found = {};

 private:
  std::vector<Message> messages_;
  Strangers strangers_;
};

RendezvousOptions MakeOptions(int rank) {
  RendezvousOptions options = {};
  options.nranks = kRanks;
  options.rank = rank;
  options.deadline = Deadline::After(kDeadline_ms);
  options.name = "fuzz";
  options.prepare = [](const Gathering& gathering, bool*) {
    Check(gathering.cards.size() == kRanks && gathering.pidfds.size() == kRanks, "all are there");
    return Status();
  };
  return options;
}

void FuzzLeader(std::vector<Message> messages) {
  FuzzMeeting meeting(std::move(messages));
  Gathering gathering;
  static_cast<void>(LeadRendezvous(&meeting, MakeOptions(0), &gathering).ok());
}

// Rank 0's part towards one rank: what it sends, with descriptors as the flags say.
void PlayLeader(const UniqueFd& listener, std::vector<Message> messages) {
  UniqueFd socket;
  const Deadline deadline = Deadline::After(200);
  while (!socket.valid() && !deadline.Passed()) {
    Status shortage;
    socket = AcceptSameUser(listener, &shortage);
    std::this_thread::yield();
  }
  for (Message& message : messages) {
    std::vector<UniqueFd> files;
    if (Notice* notice = Shaped<Notice>(&message.bytes, message.flags)) {
      if ((message.flags & kRightHead) != 0) {
        notice->magic = kBootstrapMagic;
        notice->code = occlSuccess;
      }
    }
    if ((message.flags & kWithSegment) != 0) {
      UniqueFd segment;
      if (ControlSegment::Create(kRanks, &segment).ok()) {
        // The cards, from the message's tail.
        std::shared_ptr<ControlSegment> mapped;
        if (ControlSegment::Map(segment, kRanks, &mapped).ok()) {
          for (int r = 0; r < kRanks; ++r) {
            RankCard card = {};
            if (!message.bytes.empty()) {
              std::memcpy(&card, message.bytes.data() + message.bytes.size() / 2,
                          std::min(sizeof(card), message.bytes.size() / 2));
            }
            if ((message.flags & kRightCard) != 0) card.rank = r;
            std::memcpy(mapped->rank(r).card, &card, sizeof(card));
          }
        }
        files.push_back(std::move(segment));
      }
    }
    if ((message.flags & kWithOtherFile) != 0) {
      UniqueFd other(memfd_create("fuzz", MFD_CLOEXEC));
      static_cast<void>(ftruncate(other.get(), static_cast<off_t>(message.bytes.size())) == 0);
      files.push_back(std::move(other));
    }
    if ((message.flags & kWithListener) != 0) {
      UniqueFd other;
      if (Listen(RandomSocketName(), &other).ok()) files.push_back(std::move(other));
    }
    std::vector<int> numbers;
    for (const UniqueFd& file : files) numbers.push_back(file.get());
    static_cast<void>(
        SendMessage(socket, message.bytes.data(), message.bytes.size(), numbers, Deadline::After(0))
            .ok());
  }
}

// As the leader whom `meeting` names.
bool ListenAsLeader(FuzzMeeting* meeting, UniqueFd* listener) {
  const std::string name = RandomSocketName();
  if (!Listen(name, listener).ok()) return false;
  LeaderInfo& info = meeting->found;
  info.magic = kBootstrapMagic;
  info.version = OCCL_VERSION;
  info.nranks = kRanks;
  info.host = OwnHostId();
  std::memcpy(info.socket_name, name.c_str(), name.size() + 1);
  return true;
}

void FuzzJoiner(std::vector<Message> messages) {
  FuzzMeeting meeting({});
  UniqueFd listener;
  if (!ListenAsLeader(&meeting, &listener)) return;
  std::thread leader([&] { PlayLeader(listener, std::move(messages)); });
  Gathering gathering;
  static_cast<void>(JoinRendezvous(&meeting, MakeOptions(1), &gathering).ok());
  leader.join();
}

// Whatever strangers have said, a rank that knows the secret is let in, or told what does not fit:
// there are more ranks than they can say they are.
void FuzzKeeper(std::vector<Message> messages) {
  constexpr int kMany = kMaxMessages + 3;
  FuzzMeeting meeting(std::move(messages));
  UniqueFd file;
  std::shared_ptr<ControlSegment> segment;
  if (!ControlSegment::Create(kMany, &file).ok()) return;
  if (!ControlSegment::Map(file, kMany, &segment).ok()) return;
  std::shared_ptr<Keeper> keeper;
  RendezvousOptions options = MakeOptions(0);
  options.nranks = kMany;
  const auto fail = [](ControlSegment*, int, const Status& why) {
    Check(why.code() == occlMismatch, "there is room");  // else one said that it is another kind
  };
  const Status started =
      Keeper::Start(&meeting, options, 0, std::move(file), segment, fail, &meeting.found, &keeper);
  if (started.ok()) {
    options.rank = kMany - 1;
    options.deadline = Deadline::After(60'000);
    Kept found;
    const Status fetched = FetchSegment(&meeting, options, &meeting.found, &found);
    // A stranger with the secret and a card may have been taken for the rank, or have disagreed.
    Check(fetched.ok() || fetched.code() == occlMismatch, "the rank is let in");
  }
  for (int r = 0; r < kMany; ++r) segment->rank(r).let_in.store(1);  // the door is closed
}

void FuzzFetch(std::vector<Message> messages) {
  FuzzMeeting meeting({});
  UniqueFd listener;
  if (!ListenAsLeader(&meeting, &listener)) return;
  std::thread leader([&] { PlayLeader(listener, std::move(messages)); });
  LeaderInfo found = {};
  Kept kept;
  std::shared_ptr<ControlSegment> segment;
  const Status fetched = FetchSegment(&meeting, MakeOptions(1), &found, &kept);
  leader.join();
  if (!fetched.ok() || !ControlSegment::Map(kept.file, kRanks, &segment).ok()) return;
  std::shared_ptr<Keeper> keeper;
  const auto fail = [](ControlSegment*, int, const Status&) {};
  static_cast<void>(Keeper::GoOn(MakeOptions(1), found, &kept, segment, fail, &keeper).ok());
  for (int r = 0; r < kRanks; ++r) segment->rank(r).let_in.store(1);  // the door is closed
}

void FuzzServer(std::vector<Message> messages) {
  occlUniqueId id;
  if (!CreateUniqueId(&id).ok()) return;
  IdContent content;
  std::memcpy(&content, &id, sizeof(content));
  Strangers strangers;
  const auto make_right = [&](Request* request) {
    request->magic = kIdMagic;
    request->secret = content.secret;
  };
  for (Message& message : messages) {
    Request* request = Shaped<Request>(&message.bytes, message.flags);
    if (request != nullptr && (message.flags & kRightHead) != 0) make_right(request);
    strangers.Send(content.socket_name, message, message.bytes);
  }
  // It still serves whoever is honest, and ends when told.
  UniqueFd honest;
  if (!Connect(content.socket_name, &honest).ok()) return;  // a message said goodbye
  Request goodbye = {};
  make_right(&goodbye);
  goodbye.verb = Verb::kGoodbye;
  goodbye.nranks = 1;
  static_cast<void>(SendMessage(honest, &goodbye, sizeof(goodbye), {}, Deadline::After(1000)).ok());
}

void FuzzId(const uint8_t* data, size_t size) {
  occlUniqueId id = {};
  std::memcpy(&id, data, std::min(size, sizeof(id)));
  UniqueIdStore store;
  static_cast<void>(UniqueIdStore::Connect(id, 2, &store).ok());
}

void FuzzNotice(const uint8_t* data, size_t size) {
  Notice notice = {};
  std::memcpy(&notice, data, std::min(size, sizeof(notice)));
  const Status status = FromNotice(notice);
  Check(status.code() >= occlSuccess && status.code() <= occlNotSupported, "a code of the API");
  Check(status.message().size() <= sizeof(notice.message), "a message that is not too long");
}

}  // namespace
}  // namespace occl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  auto messages = occl::ReadMessages(data + 1, size - 1);
  switch (data[0] % 7) {
    case 0:
      occl::FuzzLeader(std::move(messages));
      break;
    case 1:
      occl::FuzzJoiner(std::move(messages));
      break;
    case 2:
      occl::FuzzServer(std::move(messages));
      break;
    case 3:
      occl::FuzzId(data + 1, size - 1);
      break;
    case 4:
      occl::FuzzNotice(data + 1, size - 1);
      break;
    case 5:
      occl::FuzzKeeper(std::move(messages));
      break;
    default:
      occl::FuzzFetch(std::move(messages));
  }
  return 0;
}
