package tidegate.exchange;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.Partitioner;
import org.apache.spark.PipelinedShuffleDependency;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.serializer.DeserializationStream;
import org.apache.spark.serializer.SerializationStream;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleWriteProcessor;
import org.apache.spark.shuffle.checksum.RowBasedChecksum;
import org.apache.spark.shuffle.streaming.StreamingShuffleReader;
import org.apache.spark.util.ErrorNotifier;
import scala.Option;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.List;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;

/**
 * An endless Spark job that moves frames from slot to slot, through Spark's streaming shuffle.
 *
 * <p>The job has a stage for every level of a pipeline. Task i of a stage is a pump: it holds a line
 * to slot i, delivers what the shuffle brings for it, and puts what the slot sends into the shuffle
 * of the next stage. A pump knows nothing of steps and never looks into a frame.
 *
 * <p>A frame is a header and a payload. A header is the length of the payload (8 bytes) and the kind
 * of the frame (1 byte). On TCP, both are followed by a tag that authenticates them, as in
 * transport/wire.py.
 */
@SuppressWarnings({"unchecked", "rawtypes"})
public final class Pumps {
  private static final ClassTag ANY = ClassTag$.MODULE$.apply(Object.class);
  private static final int HANDSHAKE = 0;
  private static final int PUMP = 7;
  private static final int CARGO = 8;
  private static final int END = 9;
  private static final int HEADER_BYTES = 9;
  private static final int TARGET_BYTES = 4;
  private static final int TAG_BYTES = 16;
  private static final long LOOK_MILLIS = 100;

  private Pumps() {}

  /**
   * Run the job until every slot has ended its lines.
   *
   * @param slots where slot i listens: "unix:PATH" or "HOST:PORT"
   * @param levels how many levels the pipeline has
   * @param secret what both ends of a line prove to know
   * @param epoch which job of the pipeline this is: slots refuse the lines of any other
   * @param pipeline which pipeline of the job this is
   */
  public static void run(
      SparkContext sc, String[] slots, int levels, byte[] secret, long epoch, int pipeline) {
    Plan plan = new Plan(slots, secret, epoch, pipeline);
    Pump pump = new Pump(sc, plan);
    for (int level = 1; level < levels; level++) {
      pump = new Pump(new Shuffled(pump, new BySlot(slots.length)), plan, level);
    }
    sc.runJob(pump, new Drain(), ANY);
  }

  /**
   * Send a frame from each of some tasks to each of as many others.
   *
   * @return how many frames have arrived
   */
  public static long tryOut(SparkContext sc, int tasks) {
    return new Shuffled(new Samples(sc, tasks), new BySlot(tasks)).count();
  }

  /** What all pumps of a job have in common. */
  private record Plan(String[] slots, byte[] secret, long epoch, int pipeline)
      implements Serializable {}

  /** Takes all frames that leave a job. No lambda: Spark reads the bytecode around each. */
  private static final class Drain extends AbstractFunction2<TaskContext, Iterator<Object>, Object>
      implements Serializable {
    @Override
    public Object apply(TaskContext context, Iterator<Object> frames) {
      while (frames.hasNext()) {
        frames.next();
      }
      return null;
    }
  }

  private record SlotPartition(int index) implements Partition {
    @Override
    public int hashCode() {
      return index;
    }
  }

  private static Partition[] partitions(int slots) {
    Partition[] partitions = new Partition[slots];
    for (int slot = 0; slot < slots; slot++) {
      partitions[slot] = new SlotPartition(slot);
    }
    return partitions;
  }

  /** A frame for every slot from every slot. */
  private static final class Samples extends RDD<Object> {
    private final int slots;

    Samples(SparkContext sc, int slots) {
      super(sc, List$.MODULE$.<Dependency<?>>empty(), ANY);
      this.slots = slots;
    }

    @Override
    public Partition[] getPartitions() {
      return Pumps.partitions(slots);
    }

    @Override
    public Iterator<Object> compute(Partition partition, TaskContext context) {
      return new AbstractIterator<Object>() {
        private int target;

        @Override
        public boolean hasNext() {
          return target < slots;
        }

        @Override
        public Object next() {
          return new Tuple2<Object, Object>(target++, new byte[] {1});
        }
      };
    }
  }

  /** The key of a frame is the slot that it goes to. */
  private static final class BySlot extends Partitioner {
    private final int slots;

    BySlot(int slots) {
      this.slots = slots;
    }

    @Override
    public int numPartitions() {
      return slots;
    }

    @Override
    public int getPartition(Object slot) {
      return (Integer) slot;
    }
  }

  /** ShuffledRDD waits for the stage before it; this one reads while that one writes. */
  private static final class Shuffled extends ShuffledRDD<Object, Object, Object> {
    private final transient RDD frames;
    private final Partitioner bySlot;

    Shuffled(RDD frames, Partitioner bySlot) {
      super(frames, bySlot, ANY, ANY, ANY);
      this.frames = frames;
      this.bySlot = bySlot;
    }

    @Override
    public Seq<Dependency<?>> getDependencies() {
      return List$.MODULE$
          .<Dependency<?>>empty()
          .$colon$colon(
              new PipelinedShuffleDependency<>(
                  frames,
                  bySlot,
                  new FrameSerializer(),
                  Option.empty(),
                  Option.empty(),
                  false,
                  new ShuffleWriteProcessor(),
                  new RowBasedChecksum[0],
                  ANY,
                  ANY,
                  ANY));
    }

    @Override
    public Iterator<Tuple2<Object, Object>> compute(Partition partition, TaskContext context) {
      ShuffleHandle handle = ((ShuffleDependency) dependencies().head()).shuffleHandle();
      try {
        return (Iterator) new PatientReader(handle, context).read();
      } catch (LinkageError otherRelease) { // of Spark: its own reader costs more, but works
        return super.compute(partition, context);
      }
    }
  }

  /** Spark's reader, which looks less often whether its task has failed. */
  private static final class PatientReader extends StreamingShuffleReader<Object, Object> {
    private LinkedBlockingQueue messages;

    PatientReader(ShuffleHandle handle, TaskContext context) {
      super(handle, context, Option.empty(), new ErrorNotifier());
    }

    /** Threads that the constructor of Spark's reader has started may be the first to ask. */
    @Override
    public synchronized LinkedBlockingQueue messageQueue() {
      if (messages == null) {
        messages = new PatientQueue();
      }
      return messages;
    }
  }

  /** Spark waits 10 ms at a time for a message, which takes CPU time where none comes. */
  private static final class PatientQueue<T> extends LinkedBlockingQueue<T> {
    @Override
    public T poll(long timeout, TimeUnit unit) throws InterruptedException {
      return super.poll(Math.max(unit.toMillis(timeout), LOOK_MILLIS), TimeUnit.MILLISECONDS);
    }
  }

  private static boolean isUnix(String slot) {
    return slot.startsWith("unix:");
  }

  private static String hostOf(String slot) {
    return slot.substring(0, slot.lastIndexOf(':'));
  }

  /** Task i of a level: carries frames between slot i and the shuffles before and after it. */
  private static final class Pump extends RDD<Object> {
    private final Plan plan;
    private final int level;

    Pump(SparkContext sc, Plan plan) {
      super(sc, List$.MODULE$.<Dependency<?>>empty(), ANY);
      this.plan = plan;
      this.level = 0;
    }

    Pump(RDD before, Plan plan, int level) {
      super(before, ANY);
      this.plan = plan;
      this.level = level;
    }

    @Override
    public Partition[] getPartitions() {
      return level > 0 ? firstParent(ANY).partitions() : Pumps.partitions(plan.slots.length);
    }

    /** Beside its slot, if that is on another machine. */
    @Override
    public Seq<String> getPreferredLocations(Partition partition) {
      String slot = plan.slots[partition.index()];
      List<String> nowhere = List$.MODULE$.<String>empty();
      return isUnix(slot) ? nowhere : nowhere.$colon$colon(hostOf(slot));
    }

    @Override
    public Iterator<Object> compute(Partition partition, TaskContext context) {
      int slot = partition.index();
      try {
        Line line = new Line(plan.slots[slot], context);
        line.open(plan, level);
        if (level > 0) {
          // Both directions at once: a slot may send while more is on its way to it.
          Iterator<Tuple2<?, byte[]>> frames = (Iterator) firstParent(ANY).iterator(partition, context);
          Thread pusher = new Thread(() -> line.push(frames), "tidegate-push-" + level + "-" + slot);
          pusher.setDaemon(true);
          pusher.start();
        }
        return line;
      } catch (IOException | GeneralSecurityException failure) {
        throw raise(failure);
      }
    }
  }

  /**
   * A line to a slot; as an iterator, the frames that the slot sends.
   *
   * <p>A channel, not a stream: Spark stops a task by an interrupt, which closes a channel.
   */
  private static final class Line extends AbstractIterator<Object> {
    private final SocketChannel channel;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final ByteBuffer received = ByteBuffer.allocateDirect(1 << 16).flip();
    private final ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES);
    private final boolean isUnix;
    private Seal sends;
    private Seal receives;
    private Object next;
    private boolean hasEnded;

    Line(String slot, TaskContext context) throws IOException {
      isUnix = isUnix(slot);
      if (isUnix) {
        channel = SocketChannel.open(UnixDomainSocketAddress.of(slot.substring(5)));
      } else {
        int port = Integer.parseInt(slot.substring(slot.lastIndexOf(':') + 1));
        channel = SocketChannel.open(new InetSocketAddress(hostOf(slot), port));
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      }
      context.addTaskCompletionListener((TaskContext ended) -> close());
    }

    /** Prove the secret, have the slot prove it, and say which line this is. */
    void open(Plan plan, int level) throws IOException, GeneralSecurityException {
      byte[] ours = new byte[32];
      new SecureRandom().nextBytes(ours);
      send(HANDSHAKE, ByteBuffer.wrap(ours));
      byte[] theirs = handshake();
      send(HANDSHAKE, ByteBuffer.wrap(proof(plan.secret, "dialer", theirs, ours)));
      if (!MessageDigest.isEqual(handshake(), proof(plan.secret, "listener", ours, theirs))) {
        throw new IOException("the slot does not know the job's secret");
      }
      if (!isUnix) { // the kernel carries a Unix socket, and nobody else
        sends = new Seal(proof(plan.secret, "dialer sends", theirs, ours));
        receives = new Seal(proof(plan.secret, "listener sends", ours, theirs));
      }
      ByteBuffer greeting = ByteBuffer.allocate(16);
      send(PUMP, greeting.putLong(plan.epoch).putInt(plan.pipeline).putInt(level).flip());
    }

    void push(Iterator<Tuple2<?, byte[]>> frames) {
      try {
        while (frames.hasNext()) {
          send(CARGO, ByteBuffer.wrap(frames.next()._2()));
        }
        channel.shutdownOutput();
      } catch (Throwable broken) {
        failure.compareAndSet(null, broken);
        close();
      }
    }

    @Override
    public boolean hasNext() {
      if (next != null || hasEnded) {
        return next != null;
      }
      try {
        need(receives == null ? HEADER_BYTES : HEADER_BYTES + TAG_BYTES);
        byte[] fields = bytes(HEADER_BYTES);
        verify(fields);
        int length = (int) ByteBuffer.wrap(fields).getLong();
        byte kind = fields[HEADER_BYTES - 1];
        if (kind != CARGO) {
          if (kind != END) {
            throw new IOException("a slot sent a frame of kind " + kind);
          }
          verify(bytes(length));
          hasEnded = true;
          return false;
        }
        byte[] target = bytes(TARGET_BYTES);
        byte[] cargo = bytes(length - TARGET_BYTES);
        verify(target, cargo);
        next = new Tuple2<Object, Object>(ByteBuffer.wrap(target).getInt(), cargo);
        return true;
      } catch (IOException broken) {
        throw raise(failure.compareAndSet(null, broken) ? broken : failure.get());
      }
    }

    @Override
    public Object next() {
      hasNext();
      Object frame = next;
      next = null;
      return frame;
    }

    private byte[] handshake() throws IOException {
      need(HEADER_BYTES);
      long length = received.getLong();
      if (received.get() != HANDSHAKE || length > 64) {
        throw new IOException("the slot spoke before it proved the job's secret");
      }
      return bytes((int) length);
    }

    private static byte[] proof(byte[] secret, String role, byte[] challenge, byte[] salt)
        throws GeneralSecurityException {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(secret, "HmacSHA256"));
      mac.update(role.getBytes(StandardCharsets.US_ASCII));
      mac.update(challenge);
      mac.update(salt);
      return mac.doFinal();
    }

    private void send(int kind, ByteBuffer payload) throws IOException {
      header.clear().putLong(payload.remaining()).put((byte) kind).flip();
      ByteBuffer[] parts = {header, seal(header), payload, seal(payload)};
      while (header.hasRemaining() || payload.hasRemaining() || parts[3].hasRemaining()) {
        channel.write(parts);
      }
    }

    private ByteBuffer seal(ByteBuffer part) {
      return ByteBuffer.wrap(sends == null ? new byte[0] : sends.tag(part.array()));
    }

    private void verify(byte[]... parts) throws IOException {
      if (receives != null && !MessageDigest.isEqual(bytes(TAG_BYTES), receives.tag(parts))) {
        throw new IOException("a frame was changed on its way");
      }
    }

    /** Have so many bytes in `received`, which is enough for any header. */
    private void need(int bytes) throws IOException {
      if (received.remaining() < bytes) {
        received.compact();
        read(received, bytes);
        received.flip();
      }
    }

    private byte[] bytes(int length) throws IOException {
      byte[] found = new byte[length];
      int there = Math.min(length, received.remaining());
      received.get(found, 0, there);
      read(ByteBuffer.wrap(found).position(there), length);
      return found;
    }

    private void read(ByteBuffer into, int until) throws IOException {
      while (into.position() < until) {
        if (channel.read(into) < 0) {
          // A killed slot closes its lines too; one that is through says so by an END.
          throw new EOFException("the slot closed its line");
        }
      }
    }

    private void close() {
      try {
        channel.close();
      } catch (IOException alreadyClosed) {
        // Nothing is left to close.
      }
    }
  }

  /** Authenticates the headers and payloads of one direction, in their order. */
  private static final class Seal {
    private final Mac mac;
    private long number;

    Seal(byte[] key) throws GeneralSecurityException {
      mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
    }

    byte[] tag(byte[]... parts) {
      mac.update(ByteBuffer.allocate(8).putLong(0, number++));
      for (byte[] part : parts) {
        mac.update(part);
      }
      return Arrays.copyOf(mac.doFinal(), TAG_BYTES);
    }
  }

  /** Length and bytes; no key, because only Java's serializer may write one here. */
  private static final class FrameSerializer extends Serializer implements Serializable {
    @Override
    public SerializerInstance newInstance() {
      return new FrameSerializerInstance();
    }
  }

  private static final class FrameSerializerInstance extends SerializerInstance {
    @Override
    public <T> ByteBuffer serialize(T value, ClassTag<T> type) {
      throw new UnsupportedOperationException();
    }

    @Override
    public <T> T deserialize(ByteBuffer bytes, ClassTag<T> type) {
      throw new UnsupportedOperationException();
    }

    @Override
    public <T> T deserialize(ByteBuffer bytes, ClassLoader loader, ClassTag<T> type) {
      throw new UnsupportedOperationException();
    }

    @Override
    public SerializationStream serializeStream(OutputStream stream) {
      DataOutputStream out = new DataOutputStream(stream);
      return new SerializationStream() {
        @Override
        public <T> SerializationStream writeObject(T value, ClassTag<T> type) {
          byte[] frame = (byte[]) value;
          try {
            out.writeInt(frame.length);
            out.write(frame);
            return this;
          } catch (IOException failure) {
            throw raise(failure);
          }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
      };
    }

    @Override
    public DeserializationStream deserializeStream(InputStream stream) {
      DataInputStream in = new DataInputStream(stream);
      return new DeserializationStream() {
        @Override
        public <T> T readKey(ClassTag<T> type) {
          return null;
        }

        @Override
        public <T> T readObject(ClassTag<T> type) {
          try {
            int first = in.read();
            if (first < 0) {
              throw new EndOfFrames();
            }
            byte[] frame =
                new byte[(first << 24) | (in.readUnsignedByte() << 16) | in.readUnsignedShort()];
            in.readFully(frame);
            return (T) frame;
          } catch (IOException endOrFailure) {
            throw raise(endOrFailure);
          }
        }

        @Override
        public void close() {}
      };
    }
  }

  /** What Spark expects at the end of every packet; a stack trace would cost more than the packet. */
  private static final class EndOfFrames extends EOFException {
    @Override
    public Throwable fillInStackTrace() {
      return this;
    }
  }

  private static <E extends Throwable> RuntimeException raise(Throwable failure) throws E {
    throw (E) failure;
  }
}
