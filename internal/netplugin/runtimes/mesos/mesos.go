package mesos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// SocketFile is the name of the socket; it lies beside the CNI plugin's.
const SocketFile = "contiv-mesos.sock"

// The paths of 1.x's two calls.
const (
	PathAdd = "/MesosNwIntfAdd"
	PathDel = "/MesosNwIntfDel"
)

// Version is the version of the CNI specification that answers have.
const Version = "0.2.0"

// codeFailed is the code of every error object, as in 1.x.
const codeFailed = 2

// maxRequest bounds a request, in bytes.
const maxRequest = 1 << 20

// request is the body of both calls.
type request struct {
	IfName    string            `json:"cni_ifname"`
	Netns     string            `json:"cni_netns"`
	Container string            `json:"cni_containerid"`
	Labels    map[string]string `json:"labels"`
}

// Handler answers the two calls by what svc does; any other path is 503, as in 1.x.
func Handler(svc attach.Service) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+PathAdd, call(svc, cni.Add))
	mux.Handle("POST "+PathDel, call(svc, cni.Del))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusServiceUnavailable, failure(fmt.Errorf("%q %q is not served here; %s and %s are, by POST", r.Method, r.URL.Path, PathAdd, PathDel)))
	})
	return mux
}

func call(svc attach.Service, verb string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in cni.Invocation
		var out []byte
		err := strictjson.CheckQuery(r.URL.RawQuery)
		if err == nil {
			in, err = invocation(verb, r.Body)
		}
		if err == nil {
			out, err = server.Do(r.Context(), svc, in)
		}
		if err != nil {
			answer(w, http.StatusInternalServerError, failure(err))
			return
		}
		answer(w, http.StatusOK, out)
	})
}

// invocation is what the CNI plugin would have handed over.
func invocation(verb string, body io.Reader) (cni.Invocation, error) {
	var req request
	if err := strictjson.Read(body, maxRequest, &req); err != nil {
		return cni.Invocation{}, fmt.Errorf("decode request: %w", err)
	}
	for _, f := range []struct{ name, value string }{{"cni_containerid", req.Container}, {"cni_ifname", req.IfName}, {"cni_netns", req.Netns}} {
		if f.value == "" && (verb == cni.Add || f.name != "cni_netns") { // a namespace may be gone by then
			return cni.Invocation{}, fmt.Errorf("%s must not be empty", f.name)
		}
	}
	var conf struct {
		Version string `json:"cniVersion"`
		Name    string `json:"name"`
		Args    struct {
			Mesos server.MesosArgs `json:"org.apache.mesos"`
		} `json:"args"`
	}
	conf.Version, conf.Name = Version, server.TypeMesos
	labels := &conf.Args.Mesos.NetworkInfo.Labels.Labels
	for _, k := range slices.Sorted(maps.Keys(req.Labels)) {
		*labels = append(*labels, server.MesosLabel{Key: k, Value: req.Labels[k]})
	}
	data, err := json.Marshal(conf)
	return cni.Invocation{Verb: verb, Container: req.Container, Netns: req.Netns, IfName: req.IfName, Conf: data}, err
}

// failure is the error object of specification 0.2.
func failure(err error) []byte {
	e := types.Error{Code: codeFailed, Msg: err.Error()}
	if told, ok := errors.AsType[*types.Error](err); ok {
		e.Msg, e.Details = told.Msg, told.Details
	}
	return cni.ErrorObject([]byte(`{"cniVersion":"`+Version+`"}`), &e)
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who does not listen any more needs no answer
}
