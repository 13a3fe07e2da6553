import { Code, ConnectError } from "@connectrpc/connect";

import { Failure_Reason, FailureSchema } from "./gen/gateway/v1/gateway_pb.js";

/** Reason says why a call failed. */
export { Failure_Reason as Reason };

/** PercolatorError is a failed call. */
export class PercolatorError extends Error {
  override readonly name = "PercolatorError";
  readonly reason: Failure_Reason;
  /** The code of Connect and gRPC. */
  readonly code: Code;
  /** What the caller can do; may be empty. */
  readonly remedy: string;
  /** When to repeat the call, in milliseconds; 0: unknown, or repeating does not help. */
  readonly retryAfterMs: number;
  /** Whether the call's transaction may have committed. Without it nothing was written. */
  readonly maybeCommitted: boolean;
  /** A connection failed: the answer, if there was one, did not come from the gateway. */
  readonly unanswered: boolean;

  constructor(cause: ConnectError) {
    super(cause.rawMessage, { cause });
    const failure = cause.findDetails(FailureSchema)[0];
    this.code = cause.code;
    this.unanswered = failure === undefined;
    this.reason = failure?.reason ?? reasonOf(cause.code);
    this.remedy = failure?.remedy ?? "";
    this.retryAfterMs = failure?.retryAfterMs ?? 0;
    this.maybeCommitted = failure?.maybeCommitted ?? true;
  }

  /** Whether a repetition of the call can succeed without a change of it. */
  get temporary(): boolean {
    return temporary.has(this.reason);
  }
}

const temporary = new Set([
  Failure_Reason.CONFLICT,
  Failure_Reason.LOCKED,
  Failure_Reason.COMMIT_UNKNOWN,
  Failure_Reason.OVERLOADED,
  Failure_Reason.UNAVAILABLE,
  Failure_Reason.SESSION_ENDED,
  Failure_Reason.STARTING,
  Failure_Reason.DEADLINE,
  // HTTP/2 reports a killed node so. The caller's own signal ends the repetitions (Deadline.pause).
  Failure_Reason.CANCELED,
]);

function reasonOf(code: Code): Failure_Reason {
  switch (code) {
    case Code.Canceled:
      return Failure_Reason.CANCELED;
    case Code.DeadlineExceeded:
      return Failure_Reason.DEADLINE;
    case Code.PermissionDenied:
      return Failure_Reason.PERMISSION;
    case Code.Unauthenticated:
      return Failure_Reason.UNAUTHENTICATED;
    case Code.ResourceExhausted:
      return Failure_Reason.OVERLOADED;
    case Code.InvalidArgument:
    case Code.Unimplemented:
      return Failure_Reason.INVALID;
    default:
      return Failure_Reason.UNAVAILABLE;
  }
}

/** Converts what a transport throws. */
export function toPercolatorError(thrown: unknown): PercolatorError {
  return thrown instanceof PercolatorError ? thrown : new PercolatorError(ConnectError.from(thrown));
}

/** ConditionError is thrown if conditions of an apply did not hold. Nothing was written. */
export class ConditionError extends Error {
  override readonly name = "ConditionError";
  /** Indices of the conditions that did not hold. */
  readonly failed: readonly number[];

  constructor(failed: readonly number[]) {
    super(`conditions ${failed.join(", ")} do not hold`);
    this.failed = failed;
  }
}
