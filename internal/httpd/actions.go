package httpd

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// Actions of the console: each is a call of a client service with a JSON request. Package
// internal/rpc authorizes and audits it like every such call. Handlers run on the goroutine of
// the request and keep no state.

// actions maps the last element of the path of each action to the method that it calls.
var actions = map[string]string{
	"observer-control": pb.Admin_ControlObserver_FullMethodName,
	"observer-replay":  pb.Admin_Backfill_FullMethodName,
	"notify-replay":    pb.Admin_ReplayParked_FullMethodName,
	"row-replay":       pb.Admin_ReplayRow_FullMethodName,
	"node-drain":       pb.Admin_DrainNode_FullMethodName,
	"tablet-move":      pb.Admin_MoveTablet_FullMethodName,
	"tablet-split":     pb.Percolator_SplitTablet_FullMethodName,
	"log-level":        pb.Admin_SetLogLevel_FullMethodName,
}

// messagesOf returns an empty request and an empty response of a method, /SERVICE/METHOD.
func messagesOf(method string) (req, resp proto.Message, err error) {
	name := protoreflect.FullName(strings.ReplaceAll(method[1:], "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, nil, err
	}
	of := found.(protoreflect.MethodDescriptor)
	in, err := protoregistry.GlobalTypes.FindMessageByName(of.Input().FullName())
	if err != nil {
		return nil, nil, err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(of.Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	return in.New().Interface(), out.New().Interface(), nil
}

// act performs the action that the path names.
func (l *logins) act(w http.ResponseWriter, req *http.Request, body []byte) {
	user, err := l.identify(req, l.tokenOf(req))
	if err != nil {
		refuse(w, err)
		return
	}
	method, ok := actions[req.PathValue("name")]
	if !ok {
		refuse(w, &Refusal{http.StatusNotFound, CodeNotFound,
			"unknown action; known actions are " + strings.Join(slices.Sorted(maps.Keys(actions)), ", ")})
		return
	}
	asked, answer, err := messagesOf(method)
	if err != nil {
		refuse(w, err)
		return
	}
	if err := (protojson.UnmarshalOptions{RecursionLimit: 16}).Unmarshal(body, asked); err != nil {
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid,
			"the request does not match the action's message: " + err.Error()})
		return
	}
	if r, ok := asked.(*pb.ControlObserverRequest); ok && r.Retire {
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid,
			"retiring drops waiting notifications and cannot be undone: use `percolator observer retire`"})
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), actTime)
	defer cancel()
	if err := l.operators.Act(ctx, user, req.RemoteAddr, method, asked, answer); err != nil {
		refuse(w, err)
		return
	}
	out, err := pbjson.Marshal(answer)
	if err != nil {
		refuse(w, err)
		return
	}
	sendJSON(w, http.StatusOK, out)
}
