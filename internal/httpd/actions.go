package httpd

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// Actions of the console: each is a call of a client service with a JSON request. Package
// internal/rpc authorizes and audits it like every such call. Handlers run on the goroutine of
// the request and keep no state.

// action is a call that the console offers.
type action struct {
	method            string
	request, response func() proto.Message
	// refuse returns the reason for which the console refuses the request, or "". A nil refuse
	// refuses none.
	refuse func(proto.Message) string
}

// actions holds all actions by the last element of their path.
var actions = map[string]action{
	"observer-control": {
		pb.Admin_ControlObserver_FullMethodName, message[pb.ControlObserverRequest](),
		message[pb.ControlObserverResponse](), refuseRetire,
	},
	"observer-replay": {
		pb.Admin_Backfill_FullMethodName, message[pb.BackfillRequest](),
		message[pb.BackfillResponse](), nil,
	},
	"notify-replay": {
		pb.Admin_ReplayParked_FullMethodName, message[pb.ReplayParkedRequest](),
		message[pb.ReplayParkedResponse](), nil,
	},
	"row-replay": {
		pb.Admin_ReplayRow_FullMethodName, message[pb.ReplayRowRequest](),
		message[pb.ReplayRowResponse](), nil,
	},
	"node-drain": {
		pb.Admin_DrainNode_FullMethodName, message[pb.DrainNodeRequest](),
		message[pb.DrainNodeResponse](), nil,
	},
	"tablet-move": {
		pb.Admin_MoveTablet_FullMethodName, message[pb.MoveTabletRequest](),
		message[pb.MoveTabletResponse](), nil,
	},
	"tablet-split": {
		pb.Percolator_SplitTablet_FullMethodName, message[pb.SplitTabletRequest](),
		message[pb.SplitResponse](), nil,
	},
	"log-level": {
		pb.Admin_SetLogLevel_FullMethodName, message[pb.SetLogLevelRequest](),
		message[pb.SetLogLevelResponse](), nil,
	},
}

// message returns a constructor of messages of a type.
func message[T any, M interface {
	*T
	proto.Message
}]() func() proto.Message {
	return func() proto.Message { return M(new(T)) }
}

func refuseRetire(req proto.Message) string {
	if req.(*pb.ControlObserverRequest).Retire {
		return "retiring drops waiting notifications and cannot be undone: use `percolator observer retire`"
	}
	return ""
}

// act performs the action that the path names.
func (l *logins) act(w http.ResponseWriter, req *http.Request, body []byte) {
	user, err := l.identify(req, l.tokenOf(req))
	if err != nil {
		refuse(w, err)
		return
	}
	a, ok := actions[req.PathValue("name")]
	if !ok {
		refuse(w, &Refusal{http.StatusNotFound, CodeNotFound,
			"unknown action; known actions are " + strings.Join(actionNames(), ", ")})
		return
	}
	asked, answer := a.request(), a.response()
	if err := (protojson.UnmarshalOptions{RecursionLimit: 16}).Unmarshal(body, asked); err != nil {
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid,
			"the request does not match the action's message: " + err.Error()})
		return
	}
	if a.refuse != nil {
		if why := a.refuse(asked); why != "" {
			refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, why})
			return
		}
	}
	ctx, cancel := context.WithTimeout(req.Context(), actTime)
	defer cancel()
	if err := l.operators.Act(ctx, user, req.RemoteAddr, a.method, asked, answer); err != nil {
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

func actionNames() []string {
	var names []string
	for name := range actions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
