/* A generator for lanewise in C99 or C++: one header, nothing to link (docs/generator-protocol.md).
 *
 *   lanewise g;                                        // 14 KB, and all that it keeps
 *   lanewise_form form = {"sine", {LANEWISE_FLOAT32, 1, {8}}, {LANEWISE_FLOAT32, 1, {1}}, 1, 0};
 *   if (lanewise_open(&g, &form) != LANEWISE_OK) { fprintf(stderr, "%s\n", g.error); return 1; }
 *   for (;;) switch (lanewise_next(&g)) {              // waits until lanewise wants something
 *     case LANEWISE_BEGIN:  t = 0; random = g.seed; break;            // a run begins: forget all, draw from g.seed
 *     case LANEWISE_SAMPLE: make(x, y); lanewise_send(&g, x, y, NULL); break;
 *     case LANEWISE_BYE:    lanewise_close(&g); return 0;
 *     default:              fprintf(stderr, "%s\n", g.error); return 1;
 *   }
 *
 * Nothing here allocates, starts a thread, changes a signal or ends the program. One thread calls. A return value that
 * is neither LANEWISE_OK nor an event is LANEWISE_FAILED: g.error says why, and only lanewise_close may follow. It asks
 * for a Linux with memfd and little-endian numbers. Include it first, or define _GNU_SOURCE. lanewise kills a generator
 * that does not come back to lanewise_next within two seconds when it is to leave.
 */
#ifndef LANEWISE_GENERATOR_H
#define LANEWISE_GENERATOR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "lanewise's generator protocol is little-endian"
#endif
#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif

enum { LANEWISE_FLOAT32, LANEWISE_FLOAT64, LANEWISE_INT64 };
enum {
  LANEWISE_FAILED = -1,
  LANEWISE_OK = 0,
  /* What lanewise_next returns. */
  LANEWISE_BEGIN,   /* a run begins, g.seed, g.run, g.evaluate: forget all that was; the first event, and every reset */
  LANEWISE_SAMPLE,  /* a sample is wanted: lanewise_send, or lanewise_end where there is none */
  LANEWISE_SAVE,    /* the state is wanted: lanewise_save */
  LANEWISE_RESTORE, /* the state is g.state, g.state_size bytes, until the next call: go on from it */
  LANEWISE_BYE      /* lanewise wants no more, or is gone: leave with status 0 */
};

typedef struct {
  int dtype;         /* LANEWISE_FLOAT32 or another */
  int rank;          /* 1 to 8 */
  uint64_t shape[8]; /* of one sample, without a batch axis; each at least 1 */
} lanewise_field;

typedef struct {
  const char* name; /* of the generator, for messages; without quotes, backslashes and control characters */
  lanewise_field x, y;
  int can_reset; /* it can begin another run; otherwise every run is another process */
  int can_save;  /* it answers LANEWISE_SAVE and LANEWISE_RESTORE */
} lanewise_form;

/* What a sample may say beside x and y. NULL stands for {0, 0, 0, 0, 1.0}. */
typedef struct {
  int start;     /* a new sequence begins here (the first sample of a run always does) */
  int last;      /* none follows but lanewise_end */
  int timed;     /* `time` counts */
  int64_t time;  /* nanoseconds, since 1970 where the date is known */
  double weight; /* of the sample in the loss, 0 to 1 */
} lanewise_tag;

typedef struct {
  /* To be read. */
  uint64_t seed;     /* what all randomness is to come from */
  uint64_t run;      /* which reading of the stream this is */
  uint64_t sequence; /* of the next sample in this run */
  int evaluate;      /* not training */
  char stream[513];  /* the stream's id */
  const void* state; /* see LANEWISE_RESTORE */
  size_t state_size;
  char error[256];

  /* The header's own. */
  int socket, begun, ended, answer;
  uint32_t form_crc, credit, slots;
  size_t x_size, y_at, y_size, slot_size, area_size, memory_size;
  unsigned char* memory;
  uint32_t crc_table[8][256];
  unsigned char message[4096];
} lanewise;

/* -------------------------------------------------------------------------------------------------- CRC-32 of zlib */

static inline void lanewise_crc_init(lanewise* g) {
  uint32_t i, k, c;
  for (i = 0; i < 256; ++i) {
    c = i;
    for (k = 0; k < 8; ++k) c = (c >> 1) ^ (c & 1 ? 0xEDB88320u : 0);
    g->crc_table[0][i] = c;
  }
  for (k = 1; k < 8; ++k) {
    for (i = 0; i < 256; ++i) {
      c = g->crc_table[k - 1][i];
      g->crc_table[k][i] = (c >> 8) ^ g->crc_table[0][c & 255];
    }
  }
}

/* Eight bytes at a time. `crc` is that of what came before, 0 at the beginning. */
static inline uint32_t lanewise_crc(const lanewise* g, uint32_t crc, const void* data, size_t size) {
  const unsigned char* p = (const unsigned char*)data;
  const uint32_t(*t)[256] = g->crc_table;
  uint32_t a, b;
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    memcpy(&a, p, 4);
    memcpy(&b, p + 4, 4);
    a ^= crc;
    crc = t[7][a & 255] ^ t[6][a >> 8 & 255] ^ t[5][a >> 16 & 255] ^ t[4][a >> 24] ^ t[3][b & 255] ^
          t[2][b >> 8 & 255] ^ t[1][b >> 16 & 255] ^ t[0][b >> 24];
  }
  for (; size > 0; --size, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 255];
  return ~crc;
}

/* -------------------------------------------------------------------------------------------------------- messages */

enum {
  LANEWISE_HELLO_ = 1,
  LANEWISE_WELCOME_,
  LANEWISE_CREDIT_,
  LANEWISE_SAMPLES_,
  LANEWISE_RESET_,
  LANEWISE_RESET_DONE_,
  LANEWISE_SAVE_,
  LANEWISE_STATE_,
  LANEWISE_RESTORE_,
  LANEWISE_RESTORE_DONE_,
  LANEWISE_END_,
  LANEWISE_ERROR_,
  LANEWISE_BYE_
};

static inline int lanewise_failed(lanewise* g, const char* text) {
  snprintf(g->error, sizeof g->error, "%s", text);
  return LANEWISE_FAILED;
}

/* LANEWISE_OK, LANEWISE_BYE where nobody is there any more, or LANEWISE_FAILED. */
static inline int lanewise_post(lanewise* g, int type, const void* body, size_t size) {
  unsigned char header[16] = {'L', 'W', 'M', 'S', 1, 0};
  const uint16_t t = (uint16_t)type;
  const uint32_t whole = (uint32_t)(16 + size);
  struct iovec parts[2];
  struct msghdr message;
  memcpy(header + 6, &t, 2);
  memcpy(header + 8, &whole, 4);
  parts[0].iov_base = header;
  parts[0].iov_len = 16;
  parts[1].iov_base = (void*)(uintptr_t)body;
  parts[1].iov_len = size;
  memset(&message, 0, sizeof message);
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  for (;;) {
    if (sendmsg(g->socket, &message, MSG_NOSIGNAL) >= 0) return LANEWISE_OK;
    if (errno == EPIPE || errno == ECONNRESET) return LANEWISE_BYE;
    if (errno != EINTR) return lanewise_failed(g, strerror(errno));
  }
}

/* Receives into g->message: the type, 0 for none (when it does not wait), or LANEWISE_FAILED. `memory`, where not NULL,
 * takes the descriptor that came along, or -1. */
static inline int lanewise_receive(lanewise* g, int wait, size_t* body_size, int* memory) {
  union {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part;
  struct msghdr message;
  struct cmsghdr* c;
  ssize_t size;
  uint16_t version, type;
  uint32_t told;
  part.iov_base = g->message;
  part.iov_len = sizeof g->message;
  do {
    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (memory) {
      message.msg_control = control.space;
      message.msg_controllen = CMSG_LEN(sizeof(int));
    }
    size = recvmsg(g->socket, &message, MSG_TRUNC | MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  if (size == 0 || (size < 0 && errno == ECONNRESET)) {
    *body_size = 0;
    return LANEWISE_BYE_; /* lanewise is gone */
  }
  if (size < 0) return lanewise_failed(g, strerror(errno));
  if (memory) {
    *memory = -1;
    for (c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) memcpy(memory, CMSG_DATA(c), sizeof(int));
    }
  }
  if (size < 16) return lanewise_failed(g, "size: a message is shorter than its header");
  memcpy(&version, g->message + 4, 2);
  memcpy(&type, g->message + 6, 2);
  memcpy(&told, g->message + 8, 4);
  if (memcmp(g->message, "LWMS", 4) != 0) return lanewise_failed(g, "magic: this is no message of lanewise");
  if (version != 1) return lanewise_failed(g, "version: lanewise speaks another one than 1");
  if ((size_t)size > sizeof g->message) return lanewise_failed(g, "size: a message is too long");
  if (told != (uint32_t)size) return lanewise_failed(g, "size: a message has another size than it says");
  if (type == 0) return lanewise_failed(g, "type: a message that there is not");
  *body_size = (size_t)size - 16;
  return type;
}

/* --------------------------------------------------------------------------------------------------------- welcome */

/* A string at *p, behind its opening quote, to UTF-8. 0 where it is malformed or does not fit. */
static inline int lanewise_json_string(const char** p, const char* end, char* to, size_t room) {
  static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  size_t n = 0;
  while (*p < end && **p != '"') {
    uint32_t c = (unsigned char)*(*p)++;
    char out[4];
    int length = 1, i;
    if (c < 32) return 0;
    out[0] = (char)c;
    if (c == '\\') {
      const char* known;
      if (*p == end) return 0;
      if (**p == 'u') {
        uint32_t unit[2] = {0, 0};
        int units = 1, k;
        for (k = 0; k < units; ++k) {
          if (end - *p < 5 || (*p)[0] != 'u') return 0;
          for (i = 1; i <= 4; ++i) {
            const char h = (*p)[i];
            const int digit = h >= '0' && h <= '9'                 ? h - '0'
                              : (h | 32) >= 'a' && (h | 32) <= 'f' ? (h | 32) - 'a' + 10
                                                                   : -1;
            if (digit < 0) return 0;
            unit[k] = unit[k] * 16 + (uint32_t)digit;
          }
          *p += 5;
          if (k == 0 && unit[0] >= 0xD800 && unit[0] < 0xDC00) { /* the first half of a pair */
            if (*p == end || *(*p)++ != '\\') return 0;
            units = 2;
          }
        }
        if (units == 2 && (unit[1] < 0xDC00 || unit[1] > 0xDFFF)) return 0;
        c = units == 2 ? 0x10000 + ((unit[0] - 0xD800) << 10) + (unit[1] - 0xDC00) : unit[0];
        if (c == 0 || (units == 1 && c >= 0xDC00 && c <= 0xDFFF)) return 0;
        length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (i = length - 1; i > 0; --i, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
        out[0] = (char)(length == 1 ? c : (0xF00 >> length & 0xFF) | c);
      } else {
        known = (const char*)memchr(escapes, **p, sizeof escapes - 1);
        if (known == NULL) return 0;
        out[0] = meanings[known - escapes];
        ++*p;
      }
    }
    if (n + (size_t)length >= room) return 0;
    for (i = 0; i < length; ++i) to[n++] = out[i];
  }
  if (*p == end) return 0;
  ++*p;
  to[n] = 0;
  return 1;
}

static inline const char* lanewise_json_space(const char* p, const char* end) {
  while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) ++p;
  return p;
}

/* Reads welcome, a flat object of integers and texts. */
static inline int lanewise_read_welcome(lanewise* g, const char* p, size_t size, uint64_t* slot_size, uint64_t* area) {
  static const char* const keys[7] = {"seed", "run", "slots", "slot_size", "state_size", "stream", "mode"};
  const char* const end = p + size;
  uint64_t number[5] = {0, 0, 0, 0, 0};
  unsigned seen = 0;
  char key[32], mode[32] = "";
  p = lanewise_json_space(p, end);
  if (p == end || *p++ != '{') return 0;
  for (;;) {
    int k = 0;
    p = lanewise_json_space(p, end);
    if (p == end || *p++ != '"' || !lanewise_json_string(&p, end, key, sizeof key)) return 0;
    while (k < 7 && strcmp(key, keys[k]) != 0) ++k;
    if (k == 7 || (seen >> k & 1)) return 0;
    seen |= 1u << k;
    p = lanewise_json_space(p, end);
    if (p == end || *p++ != ':') return 0;
    p = lanewise_json_space(p, end);
    if (p == end) return 0;
    if (k >= 5) {
      if (*p++ != '"') return 0;
      if (!lanewise_json_string(&p, end, k == 5 ? g->stream : mode, k == 5 ? sizeof g->stream : sizeof mode)) return 0;
    } else {
      if (*p < '0' || *p > '9') return 0;
      for (; p < end && *p >= '0' && *p <= '9'; ++p) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (number[k] > (UINT64_MAX - digit) / 10) return 0;
        number[k] = number[k] * 10 + digit;
      }
    }
    p = lanewise_json_space(p, end);
    if (p == end) return 0;
    if (*p == '}') break;
    if (*p++ != ',') return 0;
  }
  if (seen != 127 || lanewise_json_space(p + 1, end) != end) return 0;
  if (strcmp(mode, "train") != 0 && strcmp(mode, "evaluate") != 0) return 0;
  if (number[2] < 1 || number[2] > 4096) return 0;
  g->seed = number[0];
  g->run = number[1];
  g->slots = (uint32_t)number[2];
  *slot_size = number[3];
  *area = number[4];
  g->evaluate = mode[0] == 'e';
  return 1;
}

/* -------------------------------------------------------------------------------------------------------------- use */

/* Adds `"x":{"dtype":"float32","shape":[8]}` to hello and "float32[8]" to the text of the form; the size in bytes, or
 * 0. */
static inline size_t lanewise_describe(const lanewise_field* f, const char* name, char* hello, size_t hello_room,
                                       char* form, size_t form_room) {
  static const char* const dtypes[3] = {"float32", "float64", "int64"};
  size_t size;
  char shape[8 * 21 + 1] = "";
  int i;
  if (f->dtype < 0 || f->dtype > 2 || f->rank < 1 || f->rank > 8) return 0;
  size = f->dtype == LANEWISE_FLOAT32 ? 4 : 8;
  for (i = 0; i < f->rank; ++i) {
    const size_t n = strlen(shape);
    if (f->shape[i] < 1 || f->shape[i] > ((uint64_t)1 << 40) / size) return 0;
    size *= (size_t)f->shape[i];
    snprintf(shape + n, sizeof shape - n, "%s%llu", i ? "," : "", (unsigned long long)f->shape[i]);
  }
  snprintf(hello + strlen(hello), hello_room - strlen(hello), ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s]}", name,
           dtypes[f->dtype], shape);
  snprintf(form + strlen(form), form_room - strlen(form), "%s%s[%s]", *form ? " " : "", dtypes[f->dtype], shape);
  return size;
}

/* Greets lanewise and waits for its answer. LANEWISE_OK or LANEWISE_FAILED. */
static inline int lanewise_open(lanewise* g, const lanewise_form* f) {
  const int all_seals = 0x0002 | 0x0004 | 0x0001; /* shrink, grow, seal */
  const char* control = getenv("LANEWISE_CONTROL");
  char hello[1024], form[512] = "", *stop = NULL;
  size_t body = 0;
  uint64_t slot_size = 0, area = 0;
  socklen_t length = sizeof(int);
  int kind = 0, type, memory = -1, sealed;
  long number;
  const char* c;
  struct stat about;
  memset(g, 0, offsetof(lanewise, crc_table));
  g->socket = -1;
  number = control ? strtol(control, &stop, 10) : -1;
  if (!control || stop == control || *stop || number < 0 || number > 1 << 20 ||
      getsockopt((int)number, SOL_SOCKET, SO_TYPE, &kind, &length) != 0 || kind != SOCK_SEQPACKET) {
    return lanewise_failed(g,
                           "this program gives samples to lanewise and was started without it; run it with "
                           "lanewise, or try: python -m lanewise check FILE");
  }
  g->socket = (int)number;
  fcntl(g->socket, F_SETFD, FD_CLOEXEC);
  lanewise_crc_init(g);
  for (c = f->name; *c; ++c) {
    if ((unsigned char)*c < 32 || *c == '"' || *c == '\\') return lanewise_failed(g, "the name holds what it may not");
  }
  if (c - f->name > 256) return lanewise_failed(g, "the name is longer than 256 bytes");
  snprintf(hello, sizeof hello, "{\"name\":\"%s\",\"helper\":\"generator.h 0.1.0\"", f->name);
  g->x_size = lanewise_describe(&f->x, "x", hello, sizeof hello, form, sizeof form);
  g->y_size = lanewise_describe(&f->y, "y", hello, sizeof hello, form, sizeof form);
  if (!g->x_size || !g->y_size) return lanewise_failed(g, "x or y has a dtype, rank or shape that there is not");
  g->y_at = (g->x_size + 7) / 8 * 8;
  g->form_crc = lanewise_crc(g, 0, form, strlen(form));
  snprintf(hello + strlen(hello), sizeof hello - strlen(hello), ",\"state\":%s,\"reset\":%s}",
           f->can_save ? "true" : "false", f->can_reset ? "true" : "false");
  if (lanewise_post(g, LANEWISE_HELLO_, hello, strlen(hello)) == LANEWISE_FAILED) return LANEWISE_FAILED;

  type = lanewise_receive(g, 1, &body, &memory);
  if (type == LANEWISE_BYE_) {
    g->begun = g->ended = 1; /* lanewise_next will say so, too: the socket has nothing else */
    g->answer = LANEWISE_BYE_;
    return LANEWISE_OK;
  }
  if (type == LANEWISE_FAILED) return LANEWISE_FAILED;
  if (type != LANEWISE_WELCOME_) return lanewise_failed(g, "order: something comes before welcome");
  if (memory < 0) return lanewise_failed(g, "descriptor: welcome came without memory");
  sealed = fcntl(memory, F_GET_SEALS);
  if (!lanewise_read_welcome(g, (const char*)g->message + 16, body, &slot_size, &area) || slot_size % 64 != 0 ||
      slot_size < 64 + g->y_at + g->y_size || slot_size > (uint64_t)1 << 41 || area > (uint64_t)1 << 41 ||
      (area > 0) > (f->can_save != 0)) {
    close(memory);
    return lanewise_failed(g, "welcome: it is not one");
  }
  g->slot_size = (size_t)slot_size;
  g->area_size = (size_t)area;
  g->memory_size = g->slots * g->slot_size + g->area_size;
  if (fstat(memory, &about) != 0 || (uint64_t)about.st_size != g->memory_size || sealed < 0 ||
      (sealed & all_seals) != all_seals) {
    close(memory);
    return lanewise_failed(g, "descriptor: the memory has another size than welcome says, or is not sealed");
  }
  g->memory = (unsigned char*)mmap(NULL, g->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  close(memory);
  if (g->memory == (unsigned char*)MAP_FAILED) {
    g->memory = NULL;
    return lanewise_failed(g, strerror(errno));
  }
  g->credit = g->slots;
  return LANEWISE_OK;
}

/* Waits until lanewise wants something: one of the events, or LANEWISE_FAILED. */
static inline int lanewise_next(lanewise* g) {
  size_t body = 0;
  uint64_t v[6];
  uint32_t count, crc;
  int type;
  if (g->answer == LANEWISE_BYE_) return LANEWISE_BYE;
  if (!g->begun) {
    g->begun = 1;
    return LANEWISE_BEGIN;
  }
  if (g->answer) { /* of the event before, which its caller has dealt with */
    const uint64_t value = g->answer == LANEWISE_RESET_DONE_ ? g->run : g->sequence;
    type = lanewise_post(g, g->answer, &value, 8);
    g->answer = 0;
    g->credit = g->slots;
    if (type != LANEWISE_OK) return type;
  }
  for (;;) {
    type = lanewise_receive(g, g->ended || g->credit == 0, &body, NULL);
    if (type == LANEWISE_FAILED) return LANEWISE_FAILED;
    if (type == 0) return LANEWISE_SAMPLE;
    memset(v, 0, sizeof v);
    switch (type) {
      case LANEWISE_BYE_:
        g->answer = LANEWISE_BYE_;
        return LANEWISE_BYE;
      case LANEWISE_CREDIT_:
        if (body != 8) break;
        memcpy(&count, g->message + 16, 4);
        if (count < 1 || count > g->slots - g->credit) return lanewise_failed(g, "credit: more than there are slots");
        g->credit += count;
        continue;
      case LANEWISE_RESET_:
        if (body != 24) break;
        memcpy(v, g->message + 16, 24);
        g->seed = v[0];
        g->run = v[1];
        g->evaluate = (v[2] & 0xFFFFFFFFu) != 0;
        g->sequence = 0;
        g->ended = 0;
        g->answer = LANEWISE_RESET_DONE_;
        return LANEWISE_BEGIN;
      case LANEWISE_SAVE_:
        if (body != 0) break;
        return LANEWISE_SAVE;
      case LANEWISE_RESTORE_:
        if (body != 48) break;
        memcpy(v, g->message + 16, 48);
        if (v[4] > g->area_size) return lanewise_failed(g, "state: it is larger than its area");
        crc = lanewise_crc(g, 0, g->memory + g->slots * g->slot_size, (size_t)v[4]);
        if (crc != (uint32_t)v[5]) return lanewise_failed(g, "crc: of the state to restore");
        g->seed = v[0];
        g->run = v[1];
        g->evaluate = (v[2] & 0xFFFFFFFFu) != 0;
        g->sequence = v[3];
        g->ended = 0;
        g->state = g->memory + g->slots * g->slot_size;
        g->state_size = (size_t)v[4];
        g->answer = LANEWISE_RESTORE_DONE_;
        return LANEWISE_RESTORE;
      default:
        return lanewise_failed(g, "type or order: a message that may not come now");
    }
    return lanewise_failed(g, "size: a message has another size than its type");
  }
}

/* Gives one sample, after LANEWISE_SAMPLE: the values of x and y in C order. `tag` may be NULL. */
static inline int lanewise_send(lanewise* g, const void* x, const void* y, const lanewise_tag* tag) {
  unsigned char* slot;
  const uint64_t payload = g->y_at + g->y_size;
  const double weight = tag ? tag->weight : 1.0;
  const int64_t time = tag && tag->timed ? tag->time : 0;
  const uint32_t flags =
      (uint32_t)((g->sequence == 0 || (tag && tag->start)) | (tag && tag->last) << 1 | (tag && tag->timed) << 2);
  const uint32_t count[2] = {1, 0};
  uint32_t crc;
  int sent;
  if (g->ended || g->credit == 0) return lanewise_failed(g, "lanewise_send: no sample was wanted; call lanewise_next");
  if (!(weight >= 0 && weight <= 1)) return lanewise_failed(g, "lanewise_send: the weight is not from 0 to 1");
  slot = g->memory + (size_t)(g->sequence % g->slots) * g->slot_size;
  memset(slot, 0, 64);
  memcpy(slot, "LWFR", 4);
  memcpy(slot + 4, &flags, 4);
  memcpy(slot + 8, &g->sequence, 8);
  memcpy(slot + 16, &g->run, 8);
  memcpy(slot + 24, &time, 8);
  memcpy(slot + 32, &weight, 8);
  memcpy(slot + 40, &payload, 8);
  memcpy(slot + 48, &g->form_crc, 4);
  memcpy(slot + 64, x, g->x_size);
  memset(slot + 64 + g->x_size, 0, g->y_at - g->x_size);
  memcpy(slot + 64 + g->y_at, y, g->y_size);
  crc = lanewise_crc(g, lanewise_crc(g, 0, slot, 60), slot + 64, (size_t)payload);
  memcpy(slot + 60, &crc, 4);
  ++g->sequence;
  --g->credit;
  sent = lanewise_post(g, LANEWISE_SAMPLES_, count, 8);
  return sent == LANEWISE_BYE ? LANEWISE_OK : sent; /* lanewise_next will say bye */
}

/* Says that the stream has ended, after LANEWISE_SAMPLE. lanewise_next then waits for another run, or bye. */
static inline int lanewise_end(lanewise* g) {
  int sent;
  if (g->ended) return lanewise_failed(g, "lanewise_end: the stream has ended already");
  g->ended = 1;
  sent = lanewise_post(g, LANEWISE_END_, &g->sequence, 8);
  return sent == LANEWISE_BYE ? LANEWISE_OK : sent;
}

/* Gives the state, after LANEWISE_SAVE. */
static inline int lanewise_save(lanewise* g, const void* state, size_t size) {
  unsigned char body[24] = {0};
  const uint64_t bytes = size;
  uint32_t crc;
  int sent;
  if (size > g->area_size) return lanewise_failed(g, "lanewise_save: the state is larger than lanewise takes");
  memcpy(g->memory + g->slots * g->slot_size, state, size);
  crc = lanewise_crc(g, 0, state, size);
  memcpy(body, &g->sequence, 8);
  memcpy(body + 8, &bytes, 8);
  memcpy(body + 16, &crc, 4);
  sent = lanewise_post(g, LANEWISE_STATE_, body, sizeof body);
  return sent == LANEWISE_BYE ? LANEWISE_OK : sent;
}

/* Tells lanewise in words why the generator cannot go on, and returns LANEWISE_FAILED; then leave with a status other
 * than 0. */
static inline int lanewise_fail(lanewise* g, const char* why) {
  const size_t size = strlen(why);
  if (g->socket >= 0) lanewise_post(g, LANEWISE_ERROR_, why, size < 60000 ? size : 60000);
  return lanewise_failed(g, why);
}

static inline void lanewise_close(lanewise* g) {
  if (g->memory) munmap(g->memory, g->memory_size);
  if (g->socket >= 0) close(g->socket);
  g->memory = NULL;
  g->socket = -1;
}

#ifdef __cplusplus
}
#endif
#endif
