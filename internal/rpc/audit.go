package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/txn"
)

// Authorization of calls, and the audit log: one line per operator's act, written when the call has
// ended, whatever its outcome; for a quiet one (access) only if it was refused. There is no state.
// The gRPC server's authInterceptor calls it on gRPC's goroutines, the console on those of its HTTP
// requests.

// AuditMessage is the message of all lines of the audit log.
const AuditMessage = "audit"

// maxAudited is the maximum length of a text in the audit log, in bytes.
const maxAudited = 256

// Guard authorizes calls and filters their answers. Its methods may be called concurrently.
type Guard struct {
	logger *slog.Logger
	grants *grants
	schema Schema
}

// Schema provides the tables and observers that a Guard needs if there are grants. A
// txn.Transport implements it.
type Schema interface {
	Tables(ctx context.Context) ([]*pb.Table, error)
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
}

// NewGuard returns a Guard that writes to the log. policy is as ServerConfig.Policy; schema is
// used only if policy is not nil.
func NewGuard(logger *slog.Logger, policy func() (*pb.Policy, time.Time), schema Schema) *Guard {
	return &Guard{logger, &grants{read: policy}, schema}
}

// Call calls do if the caller may call the method, and returns do's answer without the parts for
// which the caller has no grant. Otherwise it returns the refusal as a *txn.ServerError, or the
// error of reading the schema. It writes an operator's act to the audit log, also if it was refused
// or do panicked; a quiet one only if it was refused.
func (g *Guard) Call(ctx context.Context, who Caller, method string, req any,
	do func() (any, error)) (resp any, err error) {
	short := method[strings.LastIndexByte(method, '/')+1:]
	refusal, reason := who.refuse(short, requiredRole(method, req)), "not the role for it"
	if refusal != nil && !public(method) {
		refusal.Message = fmt.Sprintf("%s is for nodes, and the certificate of %q is not a node's",
			method, who.Name)
	}
	if refusal == nil {
		reason = "not the grant for it"
		if refusal, err = g.refuseNamed(ctx, who, req); err != nil {
			return nil, err
		}
	}
	if refusal != nil {
		if isAct(method, req) {
			audit(ctx, g.logger, who, method, req, "refused", reason)
		} else {
			g.logger.Warn("call refused: "+reason, "method", method, "role", who.Role,
				"name", who.Name, "from", who.From)
		}
		return nil, serverError(refusal)
	}
	// Set the owner in the request, because meta limits holds and tables by owner.
	switch r := req.(type) {
	case *pb.HoldBackupRequest:
		if r.Hold != nil {
			r.Hold.By = who.Name
		}
	case *pb.HoldHistoryRequest:
		if s := r.Subscription; s != nil {
			s.By, s.Any = who.Name, who.Role.Includes(certs.Operator)
		}
	case *pb.CreateTableRequest:
		r.Owner = who.boundedAs()
	}
	resp, err = g.made(ctx, who, method, req, do)
	if err != nil || resp == nil {
		return resp, err
	}
	resp = withoutOutcomes(who, resp)
	if resp, refusal = g.grants.filterFor(who).narrow(req, resp); refusal != nil {
		return nil, serverError(refusal)
	}
	return resp, nil
}

// made makes the call, and audits it if it is an operator's act and not quiet.
func (g *Guard) made(ctx context.Context, who Caller, method string, req any,
	do func() (any, error)) (resp any, err error) {
	if !isAct(method, req) || calls[method].quiet {
		return do()
	}
	outcome, why := "failed", "panic"
	defer func() { audit(ctx, g.logger, who, method, req, outcome, why) }()
	resp, err = do()
	outcome, why = outcomeOf(err)
	return resp, err
}

// isAct reports whether the call is an operator's act: it requires more than Writer, or its
// entry is audited.
func isAct(method string, req any) bool {
	return public(method) && (calls[method].audited || !certs.Writer.Includes(requiredRole(method, req)))
}

// outcomeOf returns the outcome of a call, done, refused or failed, and its reason. A request that
// the service rejects, as invalid or untimely, is refused too, not only one without permission.
func outcomeOf(err error) (outcome, why string) {
	var refused *txn.ServerError
	if err == nil {
		return "done", ""
	}
	if !errors.As(err, &refused) {
		_ = errors.As(fromStatus(err), &refused) // the gRPC server's handlers return statuses
	}
	if refused != nil && (refused.Code == pb.Error_CODE_INVALID ||
		refused.Code == pb.Error_CODE_PERMISSION || refused.Code == pb.Error_CODE_NO_TABLE) {
		return "refused", refused.Message
	}
	return "failed", err.Error()
}

// AuditOffline writes the audit record of an operation performed while no node was running. method
// is the operation, name the person or program that performed it.
func AuditOffline(ctx context.Context, logger *slog.Logger, method, name string, req proto.Message) {
	who := Caller{Role: certs.Operator, Name: name, By: "offline"}
	audit(ctx, logger, who, method, req, "done", "")
}

// audit writes one line regardless of the log's level, so that changing the level cannot hide
// operations.
func audit(ctx context.Context, logger *slog.Logger, who Caller, method string, req any,
	outcome, why string) {
	r := slog.NewRecord(time.Now(), slog.LevelInfo, AuditMessage, 0)
	r.AddAttrs(slog.String("method", method[strings.LastIndexByte(method, '/')+1:]),
		slog.String("outcome", outcome), slog.String("role", string(who.Role)),
		slog.String("name", auditable(who.Name)), slog.String("by", who.By),
		slog.String("from", auditable(who.From)))
	if m, ok := req.(proto.Message); ok && m != nil {
		r.AddAttrs(slog.Any("request", slog.GroupValue(scalars(m.ProtoReflect(), 0)...)))
	}
	if why != "" {
		r.AddAttrs(slog.String("error", auditable(why)))
	}
	_ = logger.Handler().Handle(ctx, r) // there is nowhere to report a failing log
}

// maxNested is the depth to which scalars visits nested messages.
const maxNested = 2

// scalars returns the set fields of a request, including those of nested messages. Rows,
// values and other bytes may be secret: for them, and for lists, it returns only the length.
func scalars(m protoreflect.Message, depth int) (out []slog.Attr) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		name, v := string(f.Name()), m.Get(f)
		switch {
		case f.IsList():
			out = append(out, slog.Int(name+"_count", v.List().Len()))
		case f.IsMap():
			out = append(out, slog.Int(name+"_count", v.Map().Len()))
		case f.Kind() == protoreflect.BytesKind:
			out = append(out, slog.Int(name+"_bytes", len(v.Bytes())))
		case f.Message() != nil && depth < maxNested:
			out = append(out, slog.Any(name, slog.GroupValue(scalars(v.Message(), depth+1)...)))
		case f.Message() != nil:
		case f.Kind() == protoreflect.StringKind:
			out = append(out, slog.String(name, auditable(v.String())))
		case f.Enum() != nil:
			text := fmt.Sprint(v.Enum())
			if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
				text = string(value.Name())
			}
			out = append(out, slog.String(name, text))
		default:
			out = append(out, slog.Any(name, v.Interface()))
		}
	}
	return out
}

// auditable sanitizes an external text for the log in any format: it truncates it and escapes
// characters that are not printable.
func auditable(s string) string {
	if len(s) > maxAudited {
		s = s[:maxAudited] + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}) {
		quoted := strconv.Quote(s)
		return quoted[1 : len(quoted)-1]
	}
	return s
}
