package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// Error codes of specification 1.1 that libcni has no names for, and our own
// (100 and above are the plugin's).
const (
	codeDegraded  = 51 // STATUS: unavailable, and existing containers may suffer too
	codeExhausted = 101
	codeConflict  = 102
	codeNotAsMade = 103 // CHECK
)

// maxConf bounds a configuration, in bytes; GC's lists all attachments that the
// runtime has, some 120 bytes each.
const maxConf = 4 << 20

// Handler answers the plugin's invocations at cni.Path by what svc does.
func Handler(svc attach.Service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conf, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxConf))
		var out []byte
		if err != nil {
			err = types.NewError(types.ErrIOFailure, "read network configuration", err.Error())
		} else if err = strictjson.CheckQuery(r.URL.RawQuery, cni.Parameters...); err == nil {
			out, err = Do(r.Context(), svc, cni.ParseInvocation(r.URL.Query(), conf))
		}
		status := cni.StatusDone
		var notDone *undoneError
		var refusal *types.Error
		switch {
		case err == nil:
		case errors.As(err, &notDone):
			var f attach.Failure
			f, status = attach.NewFailure(notDone.error)
			out, _ = json.Marshal(f) // two texts cannot fail
		default:
			if !errors.As(err, &refusal) {
				refusal = types.NewError(types.ErrInternal, err.Error(), "")
			}
			out, status = cni.ErrorObject(conf, refusal), cni.StatusRefused
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(out) // a plugin that was killed needs no answer
	})
}

// undoneError is why a deletion is not done: the plugin spools it instead of failing.
type undoneError struct{ error }

type server struct{ svc attach.Service }

// Do has svc do an invocation, and returns what goes to the runtime: the result, empty
// for a verb that has none. Errors are *types.Error, or of another type for a deletion
// that is not done and is to be asked for again.
func Do(ctx context.Context, svc attach.Service, in cni.Invocation) ([]byte, error) {
	s := server{svc}
	c, err := loadConf(in.Conf)
	if err != nil {
		return nil, err
	}
	switch in.Verb {
	case cni.Add:
		return s.add(ctx, in, c)
	case cni.Del:
		req := attach.DetachRequest{Key: attach.Key{Container: in.Container, IfName: in.IfName}, Netns: in.Netns}
		if err := s.svc.Detach(ctx, req); err != nil {
			return nil, &undoneError{err}
		}
		return nil, nil
	case cni.Check:
		return nil, s.check(ctx, in, c)
	case cni.GC:
		if !c.Valid.given {
			return nil, types.NewError(types.ErrInvalidNetworkConfig, "cni.dev/valid-attachments is missing",
				"GC releases what that list lacks: give it, [] where nothing is left")
		}
		req := attach.CollectRequest{Config: c.Name, Valid: []attach.Key{}}
		for _, v := range c.Valid.list {
			req.Valid = append(req.Valid, attach.Key{Container: v.ContainerID, IfName: v.IfName})
		}
		return nil, toCNI(s.svc.Collect(ctx, req))
	case cni.Status:
		return nil, s.status(ctx)
	}
	return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "unknown verb", "netplugin knows no "+quote(in.Verb)+": it may be older than contivk8s")
}

func (s server) add(ctx context.Context, in cni.Invocation, c conf) ([]byte, error) {
	if len(c.Prev) > 0 && string(c.Prev) != "null" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "contivk8s must be the first plugin of its list",
			"prevResult: contivk8s makes the interface and must be the first plugin in the chain")
	}
	if err := checkKeys(in.Conf); err != nil {
		return nil, err
	}
	req, err := c.request(in)
	if err != nil {
		return nil, err
	}
	// Podman names containers as pods, of no namespace; it binds their ports after ADD.
	podman := req.Pod.Name != "" && req.Pod.Namespace == ""
	if podman {
		req.Pod = attach.Pod{}
	}
	ports, err := c.bindings()
	if err != nil {
		return nil, err
	}
	res, err := s.svc.Attach(ctx, req)
	if err == nil && len(ports) > 0 {
		if _, err = s.svc.Publish(ctx, attach.PublishRequest{Key: req.Key, Ports: ports, Reserved: podman}); err != nil {
			err = errors.Join(err, s.svc.Detach(context.WithoutCancel(ctx), attach.DetachRequest{Key: req.Key}))
		}
	}
	if err != nil {
		return nil, toCNI(err)
	}
	return resultJSON(res, c.CNIVersion)
}

func (s server) check(ctx context.Context, in cni.Invocation, c conf) error {
	req := attach.CheckRequest{Key: attach.Key{Container: in.Container, IfName: in.IfName}, Netns: in.Netns}
	if err := previousState(c, &req); err != nil {
		return err
	}
	err := s.svc.Check(ctx, req)
	if errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrConflict) {
		return types.NewError(codeNotAsMade, "the attachment is not what it was made", err.Error())
	}
	return toCNI(err)
}

// previousResult are the parts of a previous result that CHECK needs; their form is the
// same in all versions that have CHECK (0.4.0 and later). The library's own types panic on
// what a broken runtime may send.
type previousResult struct {
	Interfaces []struct {
		Name    string `json:"name"`
		MAC     string `json:"mac"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Address   netip.Prefix `json:"address"`
		Interface *int         `json:"interface"`
	} `json:"ips"`
}

// previousState reads, from the previous result, the state that our container
// interface should have.
func previousState(c conf, req *attach.CheckRequest) error {
	if len(c.Prev) == 0 || string(c.Prev) == "null" {
		return types.NewError(types.ErrInvalidNetworkConfig, "prevResult is missing",
			"CHECK needs the result of ADD in prevResult")
	}
	var prev previousResult
	if err := json.Unmarshal(c.Prev, &prev); err != nil {
		return types.NewError(types.ErrDecodingFailure, "decode prevResult", err.Error())
	}
	index := -1
	for i, ifc := range prev.Interfaces {
		if ifc.Sandbox != "" && ifc.Name == req.IfName {
			index, req.MAC = i, ifc.MAC
		}
	}
	for _, ip := range prev.IPs {
		if !ip.Address.IsValid() || ip.Interface != nil && index >= 0 && *ip.Interface != index {
			continue
		}
		req.Addresses = append(req.Addresses, ip.Address)
	}
	return nil
}

func (s server) status(ctx context.Context) error {
	err := s.svc.Ready(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, attach.ErrDegraded):
		return types.NewError(codeDegraded, "netplugin's data plane is not in sync", err.Error())
	}
	return types.NewError(cni.CodeUnavailable, "netplugin cannot attach containers now", err.Error())
}

// toCNI maps error kinds to the specification's codes. An error of several kinds is
// taken for the same one as by attach.NewFailure.
func toCNI(err error) error {
	if err == nil {
		return nil
	}
	code, msg := types.ErrInternal, "netplugin failed"
	switch {
	case errors.Is(err, model.ErrInvalid):
		code, msg = types.ErrInvalidNetworkConfig, "invalid request"
	case errors.Is(err, model.ErrNotFound):
		code, msg = types.ErrInvalidNetworkConfig, "something that the request names does not exist"
	case errors.Is(err, model.ErrExists), errors.Is(err, model.ErrConflict), errors.Is(err, model.ErrInUse):
		code, msg = codeConflict, "conflict"
	case errors.Is(err, model.ErrExhausted):
		code, msg = codeExhausted, "a pool is exhausted"
	case errors.Is(err, model.ErrUnavailable):
		code, msg = types.ErrTryAgainLater, "try again later"
	}
	return types.NewError(code, msg, err.Error())
}
