package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/model"
)

const maxRequest = 1 << 20

// socketHandler serves attach.Service, the adapters and the two calls of 1.x on
// the unix socket.
func (a *Agent) socketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+attach.PathAttach, call(a.Attach))
	mux.Handle("POST "+attach.PathDetach, call(noResult(a.Detach)))
	mux.Handle("POST "+attach.PathCheck, call(noResult(a.Check)))
	mux.Handle("POST "+attach.PathCollect, call(noResult(a.Collect)))
	mux.Handle("POST "+attach.PathPublish, call(a.Publish))
	mux.Handle("POST "+attach.PathTell, call(noResult(a.Tell)))
	mux.Handle("POST "+attach.PathReady, call(func(ctx context.Context, _ struct{}) (struct{}, error) {
		return struct{}{}, a.Ready(ctx)
	}))
	for pattern, h := range a.adapters {
		mux.Handle(pattern, h)
	}
	mux.HandleFunc("POST /ContivCNI.AddPod", a.legacyAdd)
	mux.HandleFunc("POST /ContivCNI.DelPod", a.legacyDel)
	return mux
}

func noResult[In any](f func(context.Context, In) error) func(context.Context, In) (struct{}, error) {
	return func(ctx context.Context, in In) (struct{}, error) { return struct{}{}, f(ctx, in) }
}

// call serves a function of one JSON value to another.
func call[In, Out any](f func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&in)
		if err != nil {
			err = model.Errorf(model.ErrInvalid, "decode request: %w", err)
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

func (a *Agent) legacyAdd(w http.ResponseWriter, r *http.Request) {
	var p legacyPod
	if !decodeLegacy(w, r, &p) {
		return
	}
	req := attach.Request{
		Key: p.key(), Netns: p.Netns, Name: p.Name, Source: attach.SourceCNI,
		Labels: map[string]string{"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace},
	}
	// 1.x' default-group exists only where somebody has made it.
	a.cluster.Acquire(model.DefaultTenant)
	defer a.cluster.Release(model.DefaultTenant)
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.AttachTimeout)
	defer cancel()
	if err := a.cluster.AwaitTenant(ctx, model.DefaultTenant); err != nil {
		legacyFail(w, "failed to add pod "+p.Namespace+"/"+p.Name, err)
		return
	}
	if a.cluster.HasGroup(model.GroupKey{Tenant: model.DefaultTenant, Name: legacyGroup}) {
		req.Group = legacyGroup
	}
	res, err := a.Attach(r.Context(), req)
	if err != nil {
		legacyFail(w, "failed to add pod "+p.Namespace+"/"+p.Name, err)
		return
	}
	a.legacyPods.Add(1)
	a.kick("pod of 1.x") // which tells of it
	a.log.Warn("a pod was attached by the contivk8s of 1.x, and its labels chose nothing, and no policy of Kubernetes selects it: that one does not say which pod it is",
		"pod", p.Namespace+"/"+p.Name, "tenant", model.DefaultTenant, "group", req.Group,
		"remedy", "install this version's contivk8s, and name tenant, network and group in its configuration or in CNI_ARGS")
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

func (a *Agent) legacyDel(w http.ResponseWriter, r *http.Request) {
	var p legacyPod
	if !decodeLegacy(w, r, &p) {
		return
	}
	if err := a.Detach(r.Context(), attach.DetachRequest{Key: p.key(), Netns: p.Netns}); err != nil {
		legacyFail(w, "failed to delete pod "+p.Namespace+"/"+p.Name, err)
		return
	}
	writeJSON(w, http.StatusOK, legacyAnswer{})
}

func decodeLegacy(w http.ResponseWriter, r *http.Request, p *legacyPod) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(p)
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
