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

// This file has calls made whose callers may make them, and writes operators' acts to the
// log: one line each when the call has ended, whatever became of it. It keeps nothing. The
// authInterceptor of the gRPC server calls it on gRPC's goroutines, and the console, whose actions
// come over HTTP, on those of its requests.

// AuditMessage is the message of all lines of the audit log.
const AuditMessage = "audit"

// maxAudited bounds a text in the audit log, in bytes.
const maxAudited = 256

// Guard decides which calls are made, and what their answers tell. Its methods may be used
// concurrently.
type Guard struct {
	logger *slog.Logger
	grants *grants
	schema Schema
}

// Schema is what a Guard has to know of tables and observers where there are grants; a
// txn.Transport is one.
type Schema interface {
	Tables(ctx context.Context) ([]*pb.Table, error)
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
}

// NewGuard returns a Guard that writes to the log. policy is as ServerConfig.Policy; schema is
// used only if it is not nil.
func NewGuard(logger *slog.Logger, policy func() (*pb.Policy, time.Time), schema Schema) *Guard {
	return &Guard{logger, &grants{read: policy}, schema}
}

// Call calls do if the caller may make the call of the method, and returns what it returns,
// without what the caller has no grant for; if the caller may not, a *txn.ServerError with
// CODE_PERMISSION. An operator's act is written to the audit log, also if it was refused or
// do panics.
func (g *Guard) Call(ctx context.Context, who Caller, method string, req any,
	do func() (any, error)) (resp any, err error) {
	short := method[strings.LastIndexByte(method, '/')+1:]
	refusal, reason := who.refuse(short, takes(method, req)), "not the role for it"
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
		return nil, &txn.ServerError{Code: refusal.Code, Message: refusal.Message}
	}
	// Holds are shared out by who asks for them, and tables are bounded by it.
	switch r := req.(type) {
	case *pb.HoldBackupRequest:
		if r.Hold != nil {
			r.Hold.By = who.Name
		}
	case *pb.CreateTableRequest:
		r.Owner = who.boundedAs()
	}
	resp, err = g.made(ctx, who, method, req, do)
	if err != nil || resp == nil {
		return resp, err
	}
	if resp, refusal = g.grants.filterFor(who).narrow(req, resp); refusal != nil {
		return nil, &txn.ServerError{Code: refusal.Code, Message: refusal.Message}
	}
	return resp, nil
}

// made makes the call, and has it audited.
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

// isAct reports whether the call is an operator's act: it takes more than a writer, or its
// row says so.
func isAct(method string, req any) bool {
	return public(method) && (calls[method].audited || !certs.Writer.Includes(takes(method, req)))
}

// outcomeOf returns what became of a call, and why that was. A service refuses what is
// wrong in the request, or at this time; that it may not be done is one refusal of several.
func outcomeOf(err error) (outcome, why string) {
	var refused *txn.ServerError
	if err == nil {
		return "done", ""
	}
	if !errors.As(err, &refused) {
		_ = errors.As(fromStatus(err), &refused) // what the gRPC server's handlers return
	}
	if refused != nil && (refused.Code == pb.Error_CODE_INVALID ||
		refused.Code == pb.Error_CODE_PERMISSION || refused.Code == pb.Error_CODE_NO_TABLE) {
		return "refused", refused.Message
	}
	return "failed", err.Error()
}

// AuditOffline writes the line of an act that was done while no node ran: method is what it
// is called, name who has done it.
func AuditOffline(ctx context.Context, logger *slog.Logger, method, name string, req proto.Message) {
	who := Caller{Role: certs.Operator, Name: name, By: "offline"}
	audit(ctx, logger, who, method, req, "done", "")
}

// audit writes one line. It goes past the log's level: who sets that must not be able to
// keep acts out of the log.
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
	_ = logger.Handler().Handle(ctx, r) // a log that cannot be written has nobody to tell
}

// maxNested is how deep messages inside of a request are looked into.
const maxNested = 2

// scalars returns the fields of a request that are set, those of messages inside of it
// too. Rows, values and whatever else is bytes may be anybody's secrets: of them, and of
// lists, only the number is told.
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

// auditable returns a text that comes from outside as the log may have it: bounded, and
// without what a terminal takes for commands, whatever the log's format leaves as it is.
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
