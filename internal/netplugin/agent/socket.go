package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

const maxRequest = 1 << 20

// socketHandler serves attach.Service, the adapters and the two calls of 1.x on
// the unix socket.
func (k *runtimeSockets) socketHandler(service attach.Service, legacy *legacyPods) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+attach.PathAttach, call(service.Attach))
	mux.Handle("POST "+attach.PathDetach, call(noResult(service.Detach)))
	mux.Handle("POST "+attach.PathCheck, call(noResult(service.Check)))
	mux.Handle("POST "+attach.PathCollect, call(noResult(service.Collect)))
	mux.Handle("POST "+attach.PathPublish, call(service.Publish))
	mux.Handle("POST "+attach.PathTell, call(noResult(service.Report)))
	mux.Handle("POST "+attach.PathReady, call(func(ctx context.Context, _ struct{}) (struct{}, error) {
		return struct{}{}, service.Ready(ctx)
	}))
	for pattern, h := range k.adapters {
		mux.Handle(pattern, h)
	}
	mux.HandleFunc("POST /ContivCNI.AddPod", legacy.add)
	mux.HandleFunc("POST /ContivCNI.DelPod", legacy.del)
	return mux
}

func noResult[In any](f func(context.Context, In) error) func(context.Context, In) (struct{}, error) {
	return func(ctx context.Context, in In) (struct{}, error) { return struct{}{}, f(ctx, in) }
}

// call serves a function of one JSON value to another.
func call[In, Out any](f func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := strictjson.CheckQuery(r.URL.RawQuery)
		if err == nil {
			err = strictjson.Read(r.Body, maxRequest, &in)
		}
		var out Out
		if err == nil {
			out, err = f(r.Context(), in)
		}
		if err != nil {
			failure, status := attach.NewFailure(err)
			writeJSON(w, status, failure)
			return
		}
		writeJSON(w, http.StatusOK, out)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // who does not listen any more needs no answer
}

// legacyPod is the body of 1.x' two calls.
type legacyPod struct {
	Name        string `json:"K8S_POD_NAME"`
	Namespace   string `json:"K8S_POD_NAMESPACE"`
	ContainerID string `json:"K8S_POD_INFRA_CONTAINER_ID"`
	Netns       string `json:"CNI_NETNS"`
	IfName      string `json:"CNI_IFNAME"`
}

// legacyAnswer is their answer.
type legacyAnswer struct {
	Result     uint   `json:"result"` // 0 = success
	EndpointID string `json:"endpointid,omitempty"`
	IPAddress  string `json:"ipaddress,omitempty"` // with prefix length
	IPv6       string `json:"ipv6address,omitempty"`
	ErrMsg     string `json:"errmsg,omitempty"`
	ErrInfo    string `json:"errinfo,omitempty"`
}

// The group of a pod that names none, as in 1.x.
const legacyGroup = "default-group"

func (p legacyPod) key() attach.Key {
	k := attach.Key{Container: p.ContainerID, IfName: p.IfName}
	if k.IfName == "" {
		k.IfName = "eth0"
	}
	return k
}

// legacyPods attaches and detaches pods for the contivk8s of 1.x, and counts those whose
// labels chose nothing. It is called by the CNI socket's handler and by Agent.pass.
type legacyPods struct {
	attachments *attachment.Service
	masters     *masterclient.Client
	cluster     *statemirror.State
	log         *slog.Logger
	timeout     time.Duration // of one attachment
	kick        func(reason string)
	unplaced    atomic.Int64 // pods since the start whose labels chose nothing
}

// problems says in the host's status that the labels of pods chose nothing.
func (l *legacyPods) problems() []compile.Problem {
	n := l.unplaced.Load()
	if n == 0 {
		return nil
	}
	return []compile.Problem{{Object: "contivk8s of 1.x", Text: fmt.Sprintf(
		"%s%d pods were attached by it since netplugin started, and their labels chose neither tenant, network nor group: give netmaster --kubeconfig, or install this version's contivk8s", model.NoEffectPrefix, n)}}
}

func (l *legacyPods) add(w http.ResponseWriter, r *http.Request) {
	var p legacyPod
	if !decodeLegacy(w, r, &p) {
		return
	}
	req := attach.Request{
		Key: p.key(), Netns: p.Netns, Name: p.Name, Source: attach.SourceCNI,
		Labels: map[string]string{"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace},
	}
	fail := func(err error) { legacyFail(w, "failed to add pod "+p.Namespace+"/"+p.Name, err) }
	ctx, cancel := context.WithTimeout(r.Context(), l.timeout)
	defer cancel()
	place, err := l.masters.PlacePod(ctx, api.PodPlacementRequest{Namespace: p.Namespace, Name: p.Name})
	if err != nil {
		fail(err)
		return
	}
	if place.Followed {
		req.Pod = attach.Pod{Namespace: p.Namespace, Name: p.Name, UID: place.UID}
	} else if req.Group, err = l.group(ctx); err != nil {
		fail(err)
		return
	}
	_, again := l.attachments.Attached(req.Key)
	res, err := l.attachments.Attach(r.Context(), req)
	if err != nil {
		fail(err)
		return
	}
	if !place.Followed && !again {
		l.unplaced.Add(1)
		l.kick("pod of 1.x") // which tells of it
		l.log.Warn("a pod was attached by the contivk8s of 1.x without its labels: no netmaster watches Kubernetes",
			"pod", p.Namespace+"/"+p.Name, "tenant", model.DefaultTenant, "group", req.Group,
			"remedy", "give netmaster --kubeconfig, or install this version's contivk8s and name tenant, network and group in its configuration")
	}
	ans := legacyAnswer{EndpointID: res.Endpoint}
	for _, ad := range res.Addresses {
		if ad.Prefix.Addr().Is4() {
			ans.IPAddress = ad.Prefix.String()
		} else {
			ans.IPv6 = ad.Prefix.String()
		}
	}
	writeJSON(w, http.StatusOK, ans)
}

// group is 1.x' default-group, where somebody has made it, else empty.
func (l *legacyPods) group(ctx context.Context) (string, error) {
	l.cluster.AcquireTenant(model.DefaultTenant)
	defer l.cluster.ReleaseTenant(model.DefaultTenant)
	if err := l.cluster.Lookup.AwaitTenant(ctx, model.DefaultTenant); err != nil || !l.cluster.Lookup.HasGroup(model.GroupKey{Tenant: model.DefaultTenant, Name: legacyGroup}) {
		return "", err
	}
	return legacyGroup, nil
}

func (l *legacyPods) del(w http.ResponseWriter, r *http.Request) {
	var p legacyPod
	if !decodeLegacy(w, r, &p) {
		return
	}
	if err := l.attachments.Detach(r.Context(), attach.DetachRequest{Key: p.key(), Netns: p.Netns}); err != nil {
		legacyFail(w, "failed to delete pod "+p.Namespace+"/"+p.Name, err)
		return
	}
	writeJSON(w, http.StatusOK, legacyAnswer{})
}

func decodeLegacy(w http.ResponseWriter, r *http.Request, p *legacyPod) bool {
	err := strictjson.CheckQuery(r.URL.RawQuery)
	if err == nil {
		err = strictjson.Read(r.Body, maxRequest, p)
	}
	if err == nil && strings.TrimSpace(p.ContainerID) == "" {
		err = errors.New("K8S_POD_INFRA_CONTAINER_ID must not be empty")
	}
	if err != nil {
		legacyFail(w, "bad request", model.Errorf(model.ErrInvalid, "decode pod: %w", err))
		return false
	}
	return true
}

func legacyFail(w http.ResponseWriter, msg string, err error) {
	// 1.x's contivk8s reads the answer of no other failing status.
	writeJSON(w, http.StatusInternalServerError, legacyAnswer{Result: 1, ErrMsg: msg, ErrInfo: err.Error()})
}
