"""Every limit of the system, with its reason. Unit last in the name; a change here is a change of contract.

Values marked ADR-009 are normative: change them by decision record, not by tuning.
"""

# --- content and identifiers -------------------------------------------------------------------------------------
CONTENT_BYTES_MAX = 4096  # ADR-009: bounds what one message costs every buffer, row and event it passes through
FRAME_BYTES_MAX = 65_536  # a 4 KiB text, JSON-escaped at worst six-fold, plus its envelope, with room to spare
BATCH_BYTES_MAX = 524_288  # client libraries refuse frames above 1 MiB by default; half of it leaves room
ID_CHARS_MAX = 64  # ids travel in keys and URLs
SEQUENCE_MAX = 2**53 - 1  # the largest integer every JSON reader keeps exact
GROUP_MEMBERS_MAX = 100  # one creation transaction (100 items) and one fanout lookup stay bounded

# --- a connection ------------------------------------------------------------------------------------------------
OUTBOUND_FRAMES_MAX = 1000  # ADR-009; full inside the grace period: the connection lags and is refilled from the store
OUTBOUND_WARN_RATIO = 0.80  # ADR-009; also the mark below which a slow consumer counts as recovered
OUTBOUND_CRITICAL_RATIO = 0.95  # ADR-009; above it the client gets SLOW_CONSUMER
OUTBOUND_WARN_FRAMES = int(OUTBOUND_FRAMES_MAX * OUTBOUND_WARN_RATIO)
OUTBOUND_CRITICAL_FRAMES = int(OUTBOUND_FRAMES_MAX * OUTBOUND_CRITICAL_RATIO)
PRIORITY_FRAMES_MAX = 200  # answers and warnings overtake pushes; inbound (100) bounds answers, this bounds the lane
SLOW_CONSUMER_GRACE_S = 5.0  # ADR-009: warning first, at least this long before the close
INBOUND_REQUESTS_MAX = 100  # ADR-009; full: SERVER_BUSY
INBOUND_FULL_S = 30.0  # a queue full this long is not a burst: load_shedding
SEND_RATE_PER_S = 10.0  # ADR-009 token bucket refill
SEND_BURST_MAX = 20  # ADR-009 token bucket capacity
RATE_REJECTIONS_MAX = 200  # in RATE_REJECTIONS_WINDOW_S: flooding, close rate_limited
RATE_REJECTIONS_WINDOW_S = 60.0
INVALID_FRAMES_MAX = 10  # in INVALID_FRAMES_WINDOW_S: a broken client, close protocol_error
INVALID_FRAMES_WINDOW_S = 60.0
SYNCS_IN_PROGRESS_MAX = 5  # a batch counts until written, so a client that does not read cannot pile up batches
SYNC_SLOTS_DEFAULT = 100
SYNC_SLOTS_MAX = 500
HELD_MESSAGES_MAX = 64  # out-of-order pushes kept per (connection, chat) while a gap closes; beyond: read them back
CHATS_PER_CONNECTION_MAX = 2000  # cursors kept per connection: 1000 chats a user may have, twice
ACK_TRIES_MAX = 8  # of one ack, about half a minute in all: longer than a store's or a process's restart
GAP_LATE_S = 0.005  # a gateway whose timer fires this late is busy, and waits once more
GAP_WAITS_MAX = 5  # then it reads back, busy or not
GAP_WAIT_S = 0.1  # a missing push may be one network hop behind; after this it is read from durability
FILL_RETRY_S = 0.25  # first pause when a fill meets a hole that is not yet sealed, or a failing store; doubles
FILL_RETRY_MAX_S = 5.0
FILL_SLOTS_MAX = 100  # read back at once for one connection: a tenth of its outbound buffer
FILLS_IN_PROGRESS_MAX = 32  # per gateway: after a loss on all connections the store gets a queue of reads
FLUSH_DELAY_TURNS = 4  # of the loop, microseconds when idle: an ack and the pushes of its batch leave in one write
FLUSH_FEW_SOCKETS = 4  # with frames at the end of a turn: those leave at once, before fanout has its turn
FLUSH_BYTES_MAX = 65_536  # handed to a socket at once, so that a backlog stays here, where it is bounded and seen

# --- a connection's life -----------------------------------------------------------------------------------------
PING_INTERVAL_S = 30.0  # ADR-009
PONG_TIMEOUT_S = 10.0  # ADR-009
CONNECTION_AGE_MAX_S = 86_400.0  # ADR-009: rotation prevents leaks and rebalances gateways
CONNECTION_AGE_JITTER_S = 600.0  # so that the connections of a deploy do not all end a day later together
REVOCATION_RECHECK_S = 60.0
DRAIN_S = 30.0  # ADR-009
DRAIN_RECONNECT_SPREAD_MS = 5000
START_TIMEOUT_S = 30.0  # for engines that start at the same time as this process
START_RETRY_S = 0.5
STOP_S = 10.0  # for everything after the drain, or instead of it; then the process ends anyway
DRAIN_ANNOUNCEMENTS_MAX = 500  # in one turn of the loop, so that announcing to everyone does not stall the answers
PROBE_INTERVAL_S = 30.0  # with jitter up to PROBE_INTERVAL_MAX_S: bounds any unnoticed loss on an open socket
PROBE_INTERVAL_MAX_S = 60.0
PROBE_CHATS_MAX = 100  # heads read in one call (one batch read)
NEW_CHATS_EVERY_S = 40.0  # between two reads of the chats that a user joined; with tick, spread and answer < 60 s
NEW_CHATS_SPREAD_S = 10.0  # added at random: users who connected together are not always read together
NEW_CHATS_TICK_S = 2.0
NEW_CHATS_USERS_MAX = 100  # read in one call
NEW_CHATS_SLOTS_MAX = 100  # the newest of a chat that are pushed; more than the tombstones at the end of any chat
NEW_CHATS_BEFORE_S = 300.0  # joined so long before connecting still counts as new: the index lags, clocks differ
JOINED_QUERIES_MAX = 16  # of one such call at once: 100 users take some 50 ms, and sends find room in between
CONNECTIONS_PER_USER_MAX = 5
CONNECTIONS_PER_GATEWAY_MAX = 100_000
REGISTRATION_TTL_S = 60.0  # two heartbeats
REGISTRATION_TIMEOUT_S = 5.0
REGISTRATION_BATCH_MAX = 500  # connections renewed in one call, so that a heartbeat is not one huge command

# --- the listener: sockets before and around a connection ----------------------------------------------------------
HANDSHAKE_S = 10.0  # a TLS handshake, and a request's head, end by then: a slow sender must not hold a socket for long
KEEP_ALIVE_S = 75.0  # longer than the idle limits of common proxies, so that they close first and lose no request
HTTP_STALL_S = 30.0  # a peer that neither sends its body nor reads its response for so long is dead
BODY_S = 10.0  # for a whole body, and a second more for every BODY_BYTES_PER_S of it: 74 s for the largest
BODY_BYTES_PER_S = 1024  # a poor mobile network is ten times as fast; a slower sender holds a place for nothing
HEAD_BYTES_MAX = 16_384  # a token, a device id and a proxy's additions; also trailers and chunk extensions: unread
REQUESTS_WAITING_MAX = 8  # pipelined on one connection, about 4 KiB each; full: bytes after them stay unparsed
BODY_BUFFER_BYTES_MAX = 65_536  # read ahead of the application; beyond it the socket is not read
HTTP_CONNECTIONS_MAX = 10_000  # sockets that are not (yet) WebSockets, TLS handshakes included; full: 503 at once
CONNECTIONS_PER_ADDRESS = 200  # of those, by default: an office behind one address has fewer, one host cannot take all
EVICTION_RATIO = 0.8  # of HTTP_CONNECTIONS_MAX: above it every new socket closes the longest idle one
REFUSED_CONNECTIONS_MAX = 500  # sockets that are still being told 503; beyond, new ones are closed without an answer
TLS_HANDSHAKES_MAX = 2000  # at once, 53 KB each; full: new sockets wait in the backlog of the kernel
ACCEPTS_AT_ONCE_MAX = 100  # sockets accepted in one turn of the loop, some milliseconds: then others have their turn
ACCEPT_RETRY_S = 1.0  # after the process ran out of file descriptors: some other socket has closed by then
FRAGMENTS_MAX = 64  # of one WebSocket message, empty ones included: 1 KiB each at least, if a client uses all 64 KiB
FRAGMENTED_MESSAGE_S = 30.0  # from its first fragment to its last: 64 KiB on a poor mobile network, thrice
UNSENT_BYTES_MAX = 131_072  # kept by the kernel for a peer that does not read; by itself it takes megabytes for each
LISTEN_BACKLOG_MAX = 2048  # after a deploy all clients reconnect within DRAIN_RECONNECT_SPREAD_MS
CLOSE_WAIT_S = 5.0  # for the peer to close after the last frame was sent; then the socket is aborted
CLOSE_UNREAD_S = 30.0  # the same while the peer has not read it: a client that wakes up learns why it was closed
LISTENER_CLOSE_S = 5.0  # for requests in flight at the very end
ATTEMPTS_PER_ADDRESS_MAX = 100  # handshakes in ATTEMPTS_WINDOW_S, be they good or bad
CONNECTS_PER_USER_MAX = 10  # new connections in ATTEMPTS_WINDOW_S
ATTEMPTS_WINDOW_S = 60.0
ATTEMPT_KEYS_MAX = 100_000  # addresses and users remembered per gateway, ~20 MB; full: the oldest is forgotten
HANDSHAKE_TIMEOUT_S = 5.0  # one question to the directory or about a revocation
REVOCATION_CHECKS_MAX = 16  # at once per gateway
REVOCATION_TICK_S = 1.0  # how often it is seen whose turn it is
REVOCATION_SPREAD_RATIO = 0.2  # a check comes up to this much early, so that clients that connected together are spread

# --- gateway to durability ---------------------------------------------------------------------------------------
PERSIST_DEADLINE_S = 5.0  # ADR-009: one deadline, passed down, rules every wait below it
BREAKER_FAILURES_MAX = 5  # ADR-009: of one dependency, in BREAKER_WINDOW_S and without a success, opens its breaker
BREAKER_WINDOW_S = 30.0
BREAKER_OPEN_S = 30.0
BREAKER_PROBE_RETRY_S = 1.0  # while the probe of an engine is out: a call takes no longer, and much less when it works
BREAKER_PROBE_S = 10.0  # a probe without an answer after this is taken for lost, and another may try

# --- durability --------------------------------------------------------------------------------------------------
SEAL_AFTER_S = 2.0  # a hole below a filled slot this old is sealed by the reader that finds it
SLOT_LEASE_S = 1.5  # a writer abandons a slot before readers begin to seal it
CHAT_QUEUE_DRAFTS_MAX = 1000  # per chat and process; full: SERVER_BUSY
COMMIT_BATCH_DRAFTS_MAX = 10_000  # that wait for one transaction of an embedded store, at most 40 MB; full: SERVER_BUSY
PIPELINES_MAX = 50_000  # active chats per ingest process; full: SERVER_BUSY
TRANSACTION_ITEMS_MAX = 100  # DynamoDB: 2 per message and 1 per distinct sender; an engine may take more
LOOKUP_KEYS_MAX = 100  # DynamoDB BatchGetItem
ATTEMPT_ROOM_S = 0.25  # with less than this left before the deadline no further attempt begins
READ_REPEATS_MAX = 1  # of a read without an answer: one reset connection costs nothing, a store that is down little
THROTTLE_RETRIES_MAX = 3  # ADR-009
THROTTLE_BACKOFF_S = 0.1
THROTTLE_BACKOFF_MAX_S = 5.0
CONFLICT_RETRIES_MAX = 5  # ADR-009
CONFLICT_BACKOFF_S = 0.05
CONFLICT_BACKOFF_MAX_S = 0.5
ALLOCATIONS_MAX = 3  # times one batch may allocate slots before it fails
STORE_TIMEOUT_S = 1.0  # one store call; shorter than the lease, so an ambiguous commit is resolved within the deadline
PUBLISH_TIMEOUT_S = 4.0  # the event log's ack, cut by the deadline
PUBLISH_EVENTS_MAX = 100  # per call to the event log
PIPELINE_IDLE_S = 1.5  # then the published mark is flushed and the pipeline dropped
SEALS_PER_READ_MAX = 50  # tombstones one read may place
HOLE_POLL_S = 0.05  # a publisher that waits for another process's hole reads this often; doubles
HOLE_POLL_MAX_S = 0.5
RECONCILE_EVERY_S = 2.0
RECONCILE_AFTER_S = 5.0  # a chat dirty longer than this has lost its owner, or the owner is stuck
RECONCILE_CHATS_MAX = 50  # per sweep
SETTLE_DEADLINE_S = 10.0  # one chat's turn in a sweep: a hole takes SEAL_AFTER_S, a slow event log its 4 s
WATERMARKS_SCAN_S = 300.0  # counter repair reads every watermark there is, page after page; a large table takes minutes
RECOVERY_QUIET_S = 10.0  # counter repair refuses while slots still fill within this time
REPAIR_SEALS_MAX = 10_000  # slots a counter repair closes; a wider gap is a wrong number somewhere, not a lost counter
READ_SLOTS_MAX = SYNC_SLOTS_MAX + 2  # slots one store read returns: a page, its cursor's own slot, one slot ahead
HEAD_PAGES_MAX = 20  # of SYNC_SLOTS_MAX: slots above a chat's stored mark; beyond: retry after HEAD_RETRY_S
HEAD_RETRY_S = 5.0  # by then the reconciler has begun to settle a chat that far behind
READ_BYTES_MAX = 1_048_576  # DynamoDB ends a page at 1 MiB, however few rows that is
TOKEN_CHARS_MAX = 36  # DynamoDB: a transaction's request token
TOKEN_LIFETIME_S = 600  # DynamoDB forgets a request token after 10 minutes
LIFECYCLE_PAUSES_S = (0.1, 0.5, 2.0)  # between tries to publish a membership change or a new chat
KEY_LIFETIME_S = 604_800  # ADR-001: 7 days of idempotency
HOT_CHAT_PER_MINUTE_MESSAGES = 100  # docs/spec/data.md#metrics: more is a hot chat, and its name is logged
HOT_CHATS_COUNTED_MAX = 50_000  # in one minute and process, as many as have a pipeline; later comers are not counted
HOT_CHATS_LOGGED_MAX = 10  # the hottest ones
OVERTAKEN_SLOTS_KEPT_MAX = 1000  # so that a hole that is read twenty times is counted once

# --- fanout ------------------------------------------------------------------------------------------------------
DOWNSTREAM_TRIES_MAX = 3  # ADR-009
DOWNSTREAM_BACKOFF_S = 0.1
DOWNSTREAM_BACKOFF_MAX_S = 1.0
DOWNSTREAM_TIMEOUT_S = 1.0
RECORD_TRIES_MAX = 3  # ADR-011: a poison record reaches the dead letters within 3 attempts
RECORD_RETRY_S = 0.1
POLL_RECORDS_MAX = 500  # ADR-011
DEAD_LETTER_RETRY_S = 0.5  # a dead letter that cannot be written pauses its partition; doubles
DEAD_LETTER_RETRY_MAX_S = 30.0
DEAD_LETTER_VALUE_BYTES_MAX = 716_800  # 700 KiB, base64 of it still fits the topic's 2 MiB record
DEAD_LETTER_REASON_CHARS_MAX = 2000  # an exception may quote the whole record it failed on
GROUP_TIMEOUT_S = 5.0  # joining, leaving and one fetch: the calls of a reader that carry no deadline of their own
POLL_WAIT_S = 5.0  # an idle reader asks again this often, so a lost wake-up delays it no longer than this
COMMIT_RETRY_S = 0.5
COMMIT_TIMEOUT_S = 2.0  # a stuck commit holds up its own partition, and a rebalance, no longer than this
COMMIT_UNCONFIRMED_S = 10.0  # an unanswered commit may arrive after a later one: after this time commit again
COMMIT_RECORDS_MAX = 100  # handled between two commits under steady load: bounds what a crash delivers twice
RUN_RECORDS_MAX = 50  # handled together: who gets the messages of a chat is asked once for all of them
BACKLOG_PAUSE_RECORDS = 100  # a partition with this many waiting is paused: it holds at most this plus one poll
POLL_RETRY_S = 0.1  # pause after a failed poll; doubles
POLL_RETRY_MAX_S = 5.0
STALL_S = 60.0  # without progress while events arrive: twice DEAD_LETTER_RETRY_MAX_S, six runs that all time out
STALL_CHECK_S = 5.0  # between two checks of the partitions of this process
MEMBER_CACHE_TTL_S = 300.0
INPROCESS_CALLS_MAX = 32  # before other tasks get a turn: ten records of fanout, under a millisecond
EVENT_RETENTION_S = 604_800  # ADR-011: 7 days of events

# --- Kafka -------------------------------------------------------------------------------------------------------
KAFKA_DELIVERY_S = 30.0  # docs/spec/data.md#kafka-settings: then librdkafka drops an event, and perhaps not the next
KAFKA_GIVE_UP_S = 20.0  # before that all waiting events are dropped: what arrives of an append stays a prefix of it
KAFKA_REQUEST_S = 29.0  # docs/spec/data.md#kafka-settings: below the delivery timeout
KAFKA_RETRY_BACKOFF_S = 0.1  # docs/spec/data.md#kafka-settings
KAFKA_LINGER_S = 0.005  # docs/spec/data.md#kafka-settings: events of other chats share a request
KAFKA_BATCH_BYTES = 65_536  # docs/spec/data.md#kafka-settings
KAFKA_RECORD_BYTES_MAX = 2_097_152  # docs/spec/data.md#topics: a dead letter holds 700 KiB in base64, and its headers
KAFKA_UNSENT_EVENTS_MAX = 20_000  # in one process, about 20 MB; full: Throttled
KAFKA_SESSION_S = 30.0  # docs/spec/data.md#kafka-settings: a consumer unheard of for so long loses its partitions
KAFKA_HEARTBEAT_S = 10.0  # docs/spec/data.md#kafka-settings
KAFKA_POLL_INTERVAL_S = 300.0  # docs/spec/data.md#kafka-settings: without a poll for so long partitions are lost
KAFKA_SOCKET_S = 10.0  # an unanswered request of a consumer; then it searches for another coordinator
KAFKA_LEAVE_S = 6.0  # to leave the group; librdkafka waits 5 s for the answer, and without limit if a commit has none
KAFKA_FETCHED_KBYTES_MAX = 16_384  # read ahead in one consumer
KAFKA_FETCH_PAUSE_S = 0.02  # when that is full; by itself librdkafka would pause a second
KAFKA_WAIT_S = 0.05  # a thread inside librdkafka returns this often for other work
KAFKA_PAUSED_RECORDS_MAX = 100  # kept of a paused partition before Kafka pauses it: short pauses need no fetch
KAFKA_UNCOMMITTED_S = 600.0  # where no offset is committed, older events are passed over: ten probes have found them
KAFKA_ADMIN_S = 10.0  # one request of a tool
PROBE_EVERY_S = 5.0  # between two questions whether an engine works: seen within an alert's minute, and cheap
KAFKA_PROBE_S = 4.0  # for one answer: less than the pause, or probes would pile up
KAFKA_LAG_EVERY_S = 10.0  # between two reads of the lag of fanout: an alert waits for minutes
KAFKA_LAG_RETRY_S = 1.0  # after a read that failed: readiness depends on it
KAFKA_LAG_S = 3.0  # one request of such a read; a stopping process may have to wait for it
KAFKA_LAG_FETCH_BYTES = 16_384  # of each partition that is behind, to see how old its next record is
TOPICS_THERE_S = 60.0  # a broker makes a hundred partitions in a second or two; a busy one takes its time
TOPICS_POLL_S = 0.2

# --- the embedded store ------------------------------------------------------------------------------------------
WRITES_WAITING_MAX = 20_000  # one group: what gathers while a slow disk syncs, about 20 MB; full: Throttled
STORE_CACHED_CHATS_MAX = 20_000  # chats whose row keys and counters are cached for the next send, 20 MB
STORE_VERIFIED_CHATS_MAX = 100_000  # chats known to have no slot above their counters, 10 MB
EVENT_TAIL_RECORDS_MAX = 512  # of each partition, kept for readers that keep up: 16 MB of usual messages, rarely full
LAZY_WRITE_S = 0.1  # for rows without a waiting caller, such as fanout offsets: a sync each would delay every send
STALL_RETRY_S = 0.01  # the store is behind with compactions: the group waits and gathers
REOPEN_RETRY_S = 1.0  # after a failed write (a full disk) the folder is opened again, until it works
STORE_ITEMS_MAX = 250  # of one transaction: 100 messages of 50 senders share a sync and take 3 ms of the event loop
ROW_IDS_MAX = 65_536  # ids, and memberships, kept as they are in keys: every send asks for each; 10 MB and 20 MB
STORE_ROWS_KEPT_MAX = 20_000  # counters, members and the like of busy chats, beside the store's own cache: some 5 MB
STORE_CACHE_BYTES = 67_108_864  # decompressed blocks of recently read rows
STORE_MEMTABLE_BYTES = 67_108_864  # rows not yet in a table file; a restart replays at most a few of these
STORE_BLOOM_RATIO = 0.02  # of those bytes: answers that a key does not exist, three times per message of a send
STORE_LOG_BYTES_MAX = 268_435_456  # of write-ahead log, before old rows are moved to table files: bounds a restart
SECONDARY_OPEN_TRIES_MAX = 20  # to open a folder whose server moves its files at this moment
SECONDARY_OPEN_RETRY_S = 0.05
INSPECTED_AT_ONCE_ROWS = 256  # by a checker, about a millisecond: then others of its process may run
SWEEP_ROWS_MAX = 1000  # read in one sweep of each kind: about a millisecond of the event loop
SWEEP_BUSY_PAUSE_S = 0.05  # between sweeps while there is much to remove: a tenth of the event loop at most
SWEEP_PACE_MAX_RATIO = 10  # of believed to real time: a wall clock 7 days ahead is believed after 18 h
SWEEP_SAVED_EVERY_S = 60  # so often the believed time is written down; a restart goes on from there
SWEEP_AHEAD_S = 3600.0  # a wall clock so far ahead of the believed time is worth a warning
DEAD_LETTER_RETENTION_S = 2_592_000  # docs/spec/data.md#topics: 30 days of dead letters

# --- DynamoDB ----------------------------------------------------------------------------------------------------
DYNAMODB_CONNECTIONS_MAX = 128  # per process, one request at a time on each: at 10 ms a call, 12,800 calls a second
DYNAMODB_WAITING_MAX = 10_000  # calls that wait for one of these; full: Throttled, and nothing was sent
DYNAMODB_IDLE_S = 20.0  # an idle connection older than this is not used again: the other side is about to close it
DYNAMODB_ANSWER_BYTES_MAX = 33_554_432  # the largest answer is 16 MiB of rows (BatchGetItem); escaping may double it
DIRTY_BUCKETS = 64  # parts of the index of dirty chats: 32,000 batches a second (docs/decisions/0062)
DIRTY_QUERIES_MAX = 16  # of a sweep at once: the connections are there for sends
CREATED_MEMBERS_MAX = 98  # with the chat and its counter they fill one transaction; the last two of 100 follow
MEMBERS_SETTLE_S = 0.02  # a transaction that is being committed shows all of itself within milliseconds
NEWEST_PAGE_SLOTS = 50  # read in one page to find the newest message below tombstones
CREDENTIALS_EVERY_S = 60.0  # they are renewed a quarter of an hour before their end, when they are requested
TABLE_ACTIVE_S = 300.0  # a new table is ready within seconds, an index on an old one may take minutes
TABLE_POLL_S = 0.5
PREPARE_TRIES_MAX = 5  # of one call of a tool that makes tables or topics: it may be repeated, and an operator waits
PREPARE_BACKOFF_S = 0.5  # before the second try; doubles: 7.5 s in all
PREPARE_TIMEOUT_S = 30.0  # then no further try begins: an unreachable Kafka takes KAFKA_ADMIN_S for each

# --- Redis ---------------------------------------------------------------------------------------------------------
REDIS_DIAL_S = 2.0  # connecting and authenticating
REDIS_REDIAL_S = 0.1  # after a failed dial calls fail at once: fanout skips records instead of waiting for each
REDIS_SENTINEL_S = 0.5  # one sentinel's answer; then the next is tried
REDIS_SILENCE_S = 0.9  # without any data while a reply is due: the connection is closed. Just under most timeouts
REDIS_ROLE_S = 2.0  # a server in use is asked for its role this often; reads alone would not notice a demotion
REDIS_WAITING_COMMANDS_MAX = 100_000  # unanswered on one connection, about 20 MB; full: refused, nothing is sent
REDIS_UNSENT_BYTES_MAX = 16_777_216  # kept for a server that does not read; full: refused, nothing is sent
REDIS_PING_S = 5.0  # a subscription without traffic is pinged this often
REDIS_SUBSCRIPTION_SILENCE_S = 10.0  # two pings without an answer: it is interrupted, and reconnects
REDIS_RESUBSCRIBE_S = 0.1  # pause before another try to subscribe; doubles, and is spread by half
REDIS_RESUBSCRIBE_MAX_S = 2.0

# --- between processes ---------------------------------------------------------------------------------------------
GRPC_SENDS_MAX = 20_000  # unanswered on one stream, about 20 MB of usual messages; full: SERVER_BUSY
GRPC_BATCH_BYTES_MAX = 1_048_576  # of drafts in one write: a long backlog leaves room for answers in between
GRPC_OUTCOMES_MAX = 2_000  # answered at once, some 500 KB
GRPC_MESSAGE_BYTES_MAX = 8_388_608  # a page of SYNC_SLOTS_MAX messages of CONTENT_BYTES_MAX, and room to grow
GRPC_CALLS_MAX = 2_000  # reads, acks and the like in flight, of one caller and at one ingest; full: SERVER_BUSY
GRPC_PING_S = 1.0  # between two pings of a stream: unanswered ones show that a process is stuck
GRPC_PINGS_UNANSWERED_MAX = 3  # then the stream is closed, before the deadline of its drafts, and its chats move on
GRPC_DIAL_S = 2.0  # until an ingest process must have greeted
GRPC_REDIAL_S = 0.1  # pause before another try; doubles, and is spread by half
GRPC_REDIAL_MAX_S = 2.0
GRPC_RESOLVE_S = 5.0  # how often a DNS name is resolved for new and removed ingest processes
GRPC_LEAVE_S = 6.0  # for gateways to route their chats elsewhere: PERSIST_DEADLINE_S and a second
GRPC_CLOCK_DRIFT_RATIO = 0.0005  # the drift between two clocks: five times that of a poor one
GRPC_LATE_S = 0.25  # a batch that took so much longer than others is late
GRPC_LATE_RESET_S = 30.0  # after so long without a batch on time the sender's clock was moved

# --- the check of stored data --------------------------------------------------------------------------------------
CHECK_RECHECK_S = 10.0  # docs/spec/data.md#invariants: a write in flight is through by then
CHECK_CLOCK_SKEW_S = 3600  # what lasts a week is expected to be there an hour less: the clocks of servers may differ
CHECK_SUSPECTS_MAX = 10_000  # kept from the first read for the second; more are no writes in flight
CHECK_VIOLATIONS_SHOWN_MAX = 5  # of each kind: the rest is a number
CHECK_PROGRESS_ROWS = 1000  # between two movements of the progress bar
CHECK_READS_MAX = 6  # of a row that changes meanwhile, before it is reported: a second, far more than an index lags
CHECK_REREAD_PAUSE_S = 0.2
CHECK_REREADS_MAX = 1000  # of one pass, some minutes: more rows that stay wrong are no writes in flight
INSPECTION_TIMEOUT_S = 10.0  # one request of a checker, such as a megabyte of rows: no client waits for it
INSPECTION_RETRY_S = 30.0  # for a store that fails or throttles in the middle of a check: it repeats, then gives up
INSPECTION_BACKOFF_S = 0.1  # before a repetition; doubles
INSPECTION_BACKOFF_MAX_S = 5.0
INSPECTED_AHEAD_ROWS = 100  # read with the one that was asked for: as many keys as DynamoDB takes in one request
INSPECTED_KEPT_ROWS = 10_000  # of those, about 10 MB: the next events of as many busy chats as share a partition
STATS_CHATS_MAX = 10  # the largest ones are listed
TRACE_CLOCK_SKEW_S = 60  # an event is searched from so long before its message on: the clocks of two machines differ

# --- partitioning ------------------------------------------------------------------------------------------------
BUCKETS = 4096  # ADR-011: frozen for ever
BUCKET_CACHE_CHATS_MAX = 65_536  # hashing in Python costs microseconds per send; twice a gateway's busy chats, ~10 MB
OWNER_CACHE_ENTRIES_MAX = 2 * BUCKETS  # all buckets for the processes of now and, while they change, of before

# --- tokens ------------------------------------------------------------------------------------------------------
ACCESS_TOKEN_S = 3600  # a stolen token is of use for an hour at most
TOKEN_ISSUED_LEEWAY_S = 30  # clocks of two machines differ; expiry has no leeway, because clients refresh before it
REFRESH_SECRET_BITS = 256  # beyond guessing, so that a plain SHA-256 is enough to store it
ACCESS_TOKEN_CHARS_MAX = 4096  # those of this server have about 700; longer ones are refused unread
SIGNING_KEY_BITS = 2048  # of RSA, at least, and for new keys: longer ones make every check slower
SECRET_KEY_BYTES = 32  # of HMAC-SHA256 and AES-256 keys
KEY_OVERLAP_S = 604_800  # a key replaced this long ago signed no token that is still valid: its file may be deleted
KEYS_RELOAD_S = 300  # verifiers reread their keys this often
KEYS_RELOAD_PAUSE_S = 30  # between two reloads for an unknown key id: anyone can send invented ones
TOKENS_CACHED_MAX = 10_000  # verified ones, ~10 MB: a check costs over 100 us, a lookup 2; full: the oldest is dropped
REVOCATIONS_MAX = 100_000  # kept in one process, about 20 MB; full: the oldest is forgotten, its peers become unsure
QUOTAS_MAX = 100_000  # windows of each kind in one process, about 30 MB; full: what ends first is forgotten
QUOTAS_SWEPT_MAX = 4  # ended windows that leave when one begins: more than come, few enough to go unnoticed

# --- people and sign-in ------------------------------------------------------------------------------------------
DISPLAY_NAME_CHARS_MAX = 64
CHAT_NAME_CHARS_MAX = 128
CHATS_PER_USER_MAX = 1000  # the chat list is enriched and sorted in memory, so it must be bounded
CODE_DIGITS = 6  # what people copy from a text message without a mistake
CODE_LIFETIME_S = 300  # short enough that a code seen over a shoulder is of no use
CODE_KEPT_S = 3600  # after its end: a late try is logged as "expired" and not as "unknown"
CODE_ATTEMPTS_MAX = 5  # of 1 000 000 codes
CODE_RESEND_S = 60  # the Retry-After of a code request
LOCKOUT_S = 900  # after CODE_ATTEMPTS_MAX wrong tries at a phone's codes
SESSION_LIFETIME_S = 2_592_000  # 30 days from sign-in, whatever is refreshed
SESSIONS_PER_USER_MAX = 5
SESSIONS_REPLACED_MAX = 20  # by one sign-in, mostly one: they share its transaction
SESSION_TOUCH_S = 60  # the last use of a session is stored at most this often
REQUEST_KEY_LIFETIME_S = 86_400  # 24 h from first use
REQUEST_CLAIM_S = 60  # without an outcome after this the claiming request is taken for dead

# --- the REST edge -----------------------------------------------------------------------------------------------
BODY_BYTES_MAX = 65_536
ANSWER_BYTES_MAX = 1_048_576  # a page is cut there
PAGE_ITEMS_DEFAULT = 20
PAGE_ITEMS_MAX = 100
HISTORY_ITEMS_DEFAULT = 50
CONTEXT_ITEMS_DEFAULT = 25
CONTEXT_ITEMS_MAX = 50
PREVIEW_CHARS_MAX = 100  # of the last message, in the chat list
ANSWER_ENVELOPE_BYTES = 4096  # of a response, for what surrounds the messages of a page: two cursors, a few names
HISTORY_READS_MAX = 20  # of one page: only a long run of tombstones needs more than one; then the page ends early
FIND_SPREAD_S = 10.0  # a message's id and its place in the order may disagree about its time by this: clocks, retries
FIND_PAGES_MAX = 64  # of SYNC_SLOTS_MAX, read to find one message by its id: far more than two such spans ever held
LOOKUP_PHONES_MAX = 100
LOOKUP_PACE_S = 0.25  # every lookup takes about this long, so that its duration reveals nothing
DELIVERY_CHATS_MAX = 50
ENRICH_IN_PROGRESS_MAX = 16  # reads at once for one chat list
MUTE_HOURS_MAX = 8760
API_TIMEOUT_S = 5.0  # one store call of a REST request
CURSOR_CHARS_MAX = 1024  # those of this server have about 200; longer ones are not decoded
QUERY_FIELDS_MAX = 50  # parameters of one request, known or not
READS_MAX = 300  # per user and minute
WRITES_MAX = 60  # per user and minute
ANONYMOUS_REQUESTS_MAX = 120  # per address and minute, without a valid token
CODES_PER_PHONE_MAX = 3  # per CODE_QUOTA_S: each one costs a text message
CODES_PER_ADDRESS_MAX = 10  # per CODE_QUOTA_S
CODE_QUOTA_S = 900
REFRESHES_MAX = 30  # per user and minute
LOOKUPS_MAX = 10  # per user and minute
LOOKUPS_PER_HOUR_MAX = 100  # sliding: enough for an address book, too few to enumerate phone numbers
LOOKUP_PACE_SPREAD_S = 0.05  # a lookup takes LOOKUP_PACE_S give or take this
CODE_DELIVERY_S = 30.0  # after this a carrier is not waited for any more
CODE_DELIVERIES_MAX = 1000  # on their way at once; more are dropped, and the client asks again
SESSIONS_TOUCHED_MAX = 100_000  # remembered as touched lately, about 20 MB; beyond, the oldest is touched early
CORS_AGE_S = 600  # how long a browser caches the permission
UNAVAILABLE_RETRY_S = 1  # the Retry-After of a 503 without a better estimate

# --- a client ----------------------------------------------------------------------------------------------------
CLIENT_BACKOFF_S = 1.0  # ADR-009: 1, 2, 4, 8, 16, 16 ... for connections; failed sends and syncs use the same steps
CLIENT_BACKOFF_MAX_S = 16.0
CLIENT_BACKOFF_SPREAD_RATIO = 0.2  # each step is spread by this, so that clients do not reconnect together
CLIENT_GREETING_WAIT_S = 10.0  # two registration timeouts: a socket without a greeting by then is dead
CLIENT_SEND_UNANSWERED_S = 10.0  # two gateway deadlines: no answer then means the question or the answer was lost
CLIENT_SYNC_SLOTS = SYNC_SLOTS_DEFAULT  # the page a client asks for
CLIENT_SYNC_UNANSWERED_S = 15.0  # longer than a send, because a page is large and waits its turn
CLIENT_SEND_BURST_MAX = 10  # half of what a server tolerates: the network may bunch what was sent evenly
CLIENT_ACK_EVERY_S = 5.0  # an ack is a write: one for many messages
CLIENT_ACK_EVERY_MESSAGES = 10
CLIENT_ACK_FRAMES_MAX = 50  # per second: half the server's inbound queue, when hundreds of chats were synced at once
CLIENT_ACK_PAUSE_S = 1.0
CLIENT_ACK_UNCONFIRMED_S = 60.0  # a dead socket swallows frames for a ping cycle: acks this young are sent again
CLIENT_RESYNC_EVERY_S = 300.0  # a lost last push leaves no gap to notice
CLIENT_OWN_SETTLE_S = 3.0  # an own message above a hole: the push that fills it is due in 2 s, after this it is fetched
CLIENT_RESEND_AGE_MAX_S = KEY_LIFETIME_S - 3600  # older: ask the user. An hour for clock drift and tries in flight
CLIENT_OUTBOX_ENTRIES_MAX = 10_000  # about 40 MB of text; full: the send is refused and nothing is queued
