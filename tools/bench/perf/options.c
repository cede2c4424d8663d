#include "tools/bench/perf/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const kOps[kPerfNumOps] = {
    "all_reduce", "broadcast", "reduce",     "all_gather", "reduce_scatter",
    "gather",     "scatter",   "all_to_all", "sendrecv",   "barrier"};

typedef struct Name {
  const char* name;
  int value;
} Name;

static const Name kTypes[] = {{"int8", occlInt8},
                              {"uint8", occlUint8},
                              {"int32", occlInt32},
                              {"uint32", occlUint32},
                              {"int64", occlInt64},
                              {"uint64", occlUint64},
                              {"half", occlFloat16},
                              {"float", occlFloat32},
                              {"double", occlFloat64},
                              {"bfloat16", occlBfloat16},
                              {NULL, 0}};
static const Name kRedOps[] = {{"sum", occlSum}, {"prod", occlProd}, {"max", occlMax},
                               {"min", occlMin}, {"avg", occlAvg},   {NULL, 0}};

static const char* NameOf(const Name* names, int value) {
  for (; names->name != NULL; ++names) {
    if (names->value == value) return names->name;
  }
  return "none";
}

const char* PerfOpName(PerfOp op) { return kOps[op]; }
const char* PerfTypeName(occlDataType_t datatype) { return NameOf(kTypes, (int)datatype); }
const char* PerfRedOpName(occlRedOp_t op) { return NameOf(kRedOps, (int)op); }

static void Refuse(const char* option, const char* text, const char* expected) {
  fprintf(stderr, "occl_perf: %s: \"%s\" is not %s\n", option, text, expected);
  exit(2);
}

static int ValueOf(const Name* names, const char* option, const char* text) {
  char known[200] = "one of";
  for (const Name* n = names; n->name != NULL; ++n) {
    if (strcmp(n->name, text) == 0) return n->value;
    strncat(known, " ", sizeof known - strlen(known) - 1);
    strncat(known, n->name, sizeof known - strlen(known) - 1);
  }
  Refuse(option, text, known);
  return 0;
}

static long Integer(const char* option, const char* text, long low, long high) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < low || value > high) {
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %ld to %ld", low, high);
    Refuse(option, text, expected);
  }
  return value;
}

static size_t Bytes(const char* option, const char* text) {
  char* end = NULL;
  const double value = strtod(text, &end);
  size_t unit = 1;
  if (*end == 'K' || *end == 'k') unit = (size_t)1 << 10;
  if (*end == 'M' || *end == 'm') unit = (size_t)1 << 20;
  if (*end == 'G' || *end == 'g') unit = (size_t)1 << 30;
  if (unit > 1) ++end;
  if (*end == 'B' || *end == 'b') ++end;
  if (end == text || *end != '\0' || value < 1 || value > 1e12) {
    Refuse(option, text, "a size such as 8, 64K or 1G");
  }
  return (size_t)(value * (double)unit);
}

static void Ops(const char* text, Options* options) {
  char copy[256];
  snprintf(copy, sizeof copy, "%s", text);
  memset(options->ops, 0, sizeof options->ops);
  for (char* name = strtok(copy, ","); name != NULL; name = strtok(NULL, ",")) {
    int found = 0;
    for (int op = 0; op < kPerfNumOps; ++op) {
      if (strcmp(name, "all") == 0 || strcmp(name, kOps[op]) == 0) found = options->ops[op] = 1;
    }
    if (!found) {
      Refuse("--op", name,
             "all or one of all_reduce broadcast reduce all_gather reduce_scatter gather scatter "
             "all_to_all sendrecv barrier");
    }
  }
}

static const char kHelp[] =
    "usage: occl_perf [options]\n"
    "Latency and bus bandwidth of OCCL between processes of this host.\n"
    "  -O, --op LIST         operations, or all (all_reduce)\n"
    "  -g, --ranks N         ranks, a process each (2)\n"
    "  -b, --minbytes SIZE   first size (8)\n"
    "  -e, --maxbytes SIZE   last size (64M)\n"
    "  -f, --stepfactor N    factor between sizes (2)\n"
    "  -d, --datatype T      int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 "
    "(float)\n"
    "  -o, --redop OP        sum prod max min avg (sum)\n"
    "  -r, --root RANK       root (0)\n"
    "  -n, --iters N         calls per batch; 0: about 300 us of them (0)\n"
    "  -w, --warmup_iters N  calls before the measurement (5)\n"
    "  -s, --seconds S       time for the batches of a line (0.4)\n"
    "  -z, --blocking 0|1    1: wait for each call; 0: queue a batch, then wait (1)\n"
    "  -c, --check 0|1       compare the results (1)\n"
    "      --refresh         the owners rewrite their inputs before every call (one call a batch)\n"
    "      --no-limit        do not measure the bare kernels beside\n"
    "      --limit-only      measure nothing else; lines \"limit OP BYTES MICROSECONDS\"\n"
    "      --pin             rank r on CPU r\n"
    "      --median          medians instead of minima of the batches\n"
    "  -T, --timeout S       deadline of every wait (60)\n"
    "A batch's time is the slowest rank's. Sizes and bandwidths are nccl-tests': the whole "
    "gathered,\n"
    "scattered or exchanged buffer of a rank counts; busbw = algbw * f, f = 2(n-1)/n for "
    "all_reduce,\n"
    "(n-1)/n for all_gather, reduce_scatter, all_to_all, gather, scatter, else 1. sendrecv is half "
    "a\n"
    "ping-pong of ranks 0 and 1. limit: the same data moved out of place by plain loops in memory "
    "that\n"
    "all ranks share, inputs just written by their owner, without any synchronisation. torch, and "
    "MPI\n"
    "with MPI_IN_PLACE, reduce to all in place: compare those with that column.\n";

enum { kRefresh = 256, kNoLimit, kLimitOnly, kPin, kMedian };

static const struct option kLong[] = {{"op", required_argument, NULL, 'O'},
                                      {"ranks", required_argument, NULL, 'g'},
                                      {"minbytes", required_argument, NULL, 'b'},
                                      {"maxbytes", required_argument, NULL, 'e'},
                                      {"stepfactor", required_argument, NULL, 'f'},
                                      {"datatype", required_argument, NULL, 'd'},
                                      {"redop", required_argument, NULL, 'o'},
                                      {"root", required_argument, NULL, 'r'},
                                      {"iters", required_argument, NULL, 'n'},
                                      {"warmup_iters", required_argument, NULL, 'w'},
                                      {"seconds", required_argument, NULL, 's'},
                                      {"blocking", required_argument, NULL, 'z'},
                                      {"check", required_argument, NULL, 'c'},
                                      {"refresh", no_argument, NULL, kRefresh},
                                      {"no-limit", no_argument, NULL, kNoLimit},
                                      {"pin", no_argument, NULL, kPin},
                                      {"limit-only", no_argument, NULL, kLimitOnly},
                                      {"median", no_argument, NULL, kMedian},
                                      {"timeout", required_argument, NULL, 'T'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

static void Take(int option, Options* o) {
  switch (option) {
    case 'O':
      Ops(optarg, o);
      break;
    case 'g':
      o->ranks = (int)Integer("--ranks", optarg, 1, PERF_MAX_RANKS);
      break;
    case 'b':
      o->min_bytes = Bytes("--minbytes", optarg);
      break;
    case 'e':
      o->max_bytes = Bytes("--maxbytes", optarg);
      break;
    case 'f':
      o->factor = (size_t)Integer("--stepfactor", optarg, 2, 1 << 20);
      break;
    case 'd':
      o->datatype = (occlDataType_t)ValueOf(kTypes, "--datatype", optarg);
      break;
    case 'o':
      o->redop = (occlRedOp_t)ValueOf(kRedOps, "--redop", optarg);
      break;
    case 'r':
      o->root = (int)Integer("--root", optarg, 0, PERF_MAX_RANKS - 1);
      break;
    case 'n':
      o->iters = (int)Integer("--iters", optarg, 0, 1000000);
      break;
    case 'w':
      o->warmup = (int)Integer("--warmup_iters", optarg, 0, 1000000);
      break;
    case 's':
      o->budget_s = atof(optarg);
      break;
    case 'z':
      o->blocking = (int)Integer("--blocking", optarg, 0, 1);
      break;
    case 'c':
      o->check = (int)Integer("--check", optarg, 0, 1);
      break;
    case 'T':
      o->timeout_s = (int)Integer("--timeout", optarg, 1, 86400);
      break;
    case kRefresh:
      o->refresh = 1;
      break;
    case kNoLimit:
      o->limit = 0;
      break;
    case kLimitOnly:
      o->limit_only = 1;
      break;
    case kPin:
      o->pin = 1;
      break;
    case kMedian:
      o->median = 1;
      break;
    case 'h':
      fputs(kHelp, stdout);
      exit(0);
    default:
      fputs("occl_perf: --help lists the options\n", stderr);
      exit(2);
  }
}

void ParseOptions(int argc, char** argv, Options* options) {
  *options = (Options){.ranks = 2,
                       .min_bytes = 8,
                       .max_bytes = (size_t)64 << 20,
                       .factor = 2,
                       .datatype = occlFloat32,
                       .redop = occlSum,
                       .warmup = 5,
                       .budget_s = 0.4,
                       .blocking = 1,
                       .check = 1,
                       .limit = 1,
                       .timeout_s = 60};
  options->ops[kPerfAllReduce] = 1;
  for (int c; (c = getopt_long(argc, argv, "O:g:b:e:f:d:o:r:n:w:s:z:c:T:h", kLong, NULL)) != -1;) {
    Take(c, options);
  }
  if (optind < argc) Refuse("argument", argv[optind], "an option (--help lists them)");
  if (options->root >= options->ranks) {
    fprintf(stderr, "occl_perf: root %d needs more than %d ranks\n", options->root, options->ranks);
    exit(2);
  }
  if (options->max_bytes < options->min_bytes) options->max_bytes = options->min_bytes;
}
