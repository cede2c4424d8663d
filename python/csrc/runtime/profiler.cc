#include "python/csrc/runtime/profiler.h"

#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <time.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "python/csrc/runtime/status.h"

namespace torch_openreg {
namespace detail {

std::atomic<bool> profiling{false};

}  // namespace detail

namespace {

using libkineto::ActivityType;

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Recorded {
  orActivity activity;
  std::uint64_t correlation;  // of the operator that ran on the reporting thread, 0 if none did
};

// The operators being run by this thread, innermost last. Work that runs on the calling thread
// belongs to the innermost one.
thread_local std::vector<std::uint64_t> correlations;

// What the runtime reports while a session records. One at a time: Kineto has one too.
class Recorder {
 public:
  // Blocks are bounded: a forgotten profiler must not eat the machine's memory.
  static constexpr std::size_t kMaxActivities = 20'000'000;

  void start() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      recorded_.clear();
    }
    OR_CHECK(orProfilerSetCallback(&Recorder::on_activity, this));
    detail::profiling.store(true, std::memory_order_relaxed);
  }

  std::vector<Recorded> stop() {
    detail::profiling.store(false, std::memory_order_relaxed);
    OR_WARN(orProfilerSetCallback(nullptr, nullptr));
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(recorded_, {});
  }

 private:
  static void on_activity(const orActivity* activity, void* context) {
    auto* self = static_cast<Recorder*>(context);
    const std::uint64_t correlation = correlations.empty() ? 0 : correlations.back();
    std::lock_guard<std::mutex> lock(self->mutex_);
    if (self->recorded_.size() < kMaxActivities) {
      self->recorded_.push_back({*activity, correlation});
    }
  }

  std::mutex mutex_;
  std::vector<Recorded> recorded_;  // guarded by mutex_
};

// Never destroyed: a worker may still report while the process exits.
Recorder& recorder() {
  static auto* instance = new Recorder;
  return *instance;
}

ActivityType type_of(orActivityKind kind) {
  switch (kind) {
    case orActivityMemcpy:
      return ActivityType::GPU_MEMCPY;
    case orActivityMemset:
      return ActivityType::GPU_MEMSET;
    default:
      return ActivityType::CONCURRENT_KERNEL;
  }
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    recorder().start();
    // Activities are in CLOCK_MONOTONIC, traces in the time of day.
    offset_ns_ = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    span_.startTime = clock_ns(CLOCK_REALTIME);
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    recorded_ = recorder().stop();
    span_.endTime = clock_ns(CLOCK_REALTIME);
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, nullptr, 0, INT64_MAX);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    std::int64_t /*start_ns*/, std::int64_t /*end_ns*/) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = span_;
    buffer_->gpuOpCount = static_cast<int>(recorded_.size());
    std::map<int, std::map<std::uint64_t, bool>> tracks;
    for (const Recorded& recorded : recorded_) {
      const orActivity& from = recorded.activity;
      tracks[from.device][from.streamId] = true;
      buffer_->emplace_activity(buffer_->span, type_of(from.kind), from.name);
      libkineto::GenericTraceActivity& to = *buffer_->activities.back();
      to.startTime = from.start_ns + offset_ns_;
      to.endTime = from.end_ns + offset_ns_;
      to.id = static_cast<std::int32_t>(recorded.correlation);
      to.device = from.device;
      to.resource = static_cast<std::int32_t>(from.streamId);
      to.threadId = static_cast<std::int32_t>(from.streamId);
      to.addMetadata("device", from.device);
      to.addMetadata("stream", from.streamId);
      if (from.bytes != 0) {
        to.addMetadata("bytes", from.bytes);
      }
      if (linked && recorded.correlation != 0) {
        to.linked = linked(to.id);
      }
      to.log(logger);
    }
    describe_tracks(logger, tracks);
    recorded_.clear();
  }

  // Devices and streams are described in processTrace, where those that were used are known.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(std::uint64_t id) override { correlations.push_back(id); }
  void popCorrelationId() override {
    if (!correlations.empty()) {
      correlations.pop_back();
    }
  }

 private:
  void describe_tracks(libkineto::ActivityLogger& logger,
                       const std::map<int, std::map<std::uint64_t, bool>>& tracks) const {
    for (const auto& [device, streams] : tracks) {
      logger.handleDeviceInfo({device, device + libkineto::kExceedMaxPid,
                               "openreg:" + std::to_string(device), "openreg"},
                              span_.startTime);
      for (const auto& [stream, used] : streams) {
        const auto id = static_cast<std::int64_t>(stream);
        logger.handleResourceInfo({id, id, device, "stream " + std::to_string(stream)},
                                  span_.startTime);
      }
    }
  }

  std::int64_t offset_ns_ = 0;
  libkineto::TraceSpan span_{0, 0, "openreg"};
  std::vector<Recorded> recorded_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "openreg";
    return name;
  }

  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types = {ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                                 ActivityType::CONCURRENT_KERNEL};
    return types;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& /*config*/) override {
    for (const ActivityType type : availableActivities()) {
      if (types.count(type) != 0) {
        return std::make_unique<Session>();
      }
    }
    return nullptr;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t /*ts_ms*/, std::int64_t /*duration_ms*/, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

}  // namespace

void register_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      []() -> std::unique_ptr<libkineto::IActivityProfiler> {
        return std::make_unique<Profiler>();
      });
}

}  // namespace torch_openreg
