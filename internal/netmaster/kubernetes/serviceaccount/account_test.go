package serviceaccount

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/model"
)

const ours = "system:serviceaccount:kube-system:contiv-netplugin"

// known is a token that the API server knows.
type known struct {
	audiences []string
	user      string
	extra     map[string]authenticationv1.ExtraValue
	ended     bool
}

func bound(node string) map[string]authenticationv1.ExtraValue {
	x := map[string]authenticationv1.ExtraValue{podName: {"netplugin-x"}, podUID: {"u1"}}
	if node != "" {
		x[nodeName] = authenticationv1.ExtraValue{node}
	}
	return x
}

// apiServer answers as Kubernetes' does; heedless is one that knows no audiences.
type apiServer struct {
	tokens   map[string]known
	pods     []corev1.Pod
	heedless bool
	refuses  string // path that is forbidden
	unknown  bool   // to it: netmaster is not who it says, which it answers in place of that
	asked    int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked++
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == s.refuses && s.unknown {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized, Message: "no credentials"})
		return
	}
	if r.URL.Path == s.refuses {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "no right"})
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /apis/authentication.k8s.io/v1/tokenreviews":
		var q authenticationv1.TokenReview
		if json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		k, ok := s.tokens[q.Spec.Token]
		want := q.Spec.Audiences
		if len(want) == 0 {
			want = []string{"https://kubernetes.default.svc"}
		}
		fit := slices.ContainsFunc(want, func(a string) bool { return slices.Contains(k.audiences, a) })
		switch {
		case !ok:
			q.Status.Error = "invalid bearer token"
		case k.ended:
			q.Status.Error = "service account token has expired"
		case !fit && !s.heedless:
			q.Status.Error = "token audiences are invalid for the target audiences"
		default:
			q.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: k.user, Extra: k.extra}}
			if !s.heedless {
				q.Status.Audiences = want
			}
		}
		q.Kind, q.APIVersion, q.Spec.Token = "TokenReview", "authentication.k8s.io/v1", ""
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(q)
	case "GET /api/v1/namespaces/kube-system/pods":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, p := range s.pods {
			if r.URL.Query().Get("fieldSelector") == "metadata.name="+p.Name {
				list.Items = append(list.Items, p)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func pod(uid types.UID, node string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "netplugin-x", Namespace: "kube-system", UID: uid}, Spec: corev1.PodSpec{NodeName: node}}
}

// TestTokenTellsItsPodsNode: a good token tells its pod's node, by itself or by the pod; another account's,
// one for another audience, one that has ended, one that is not bound to a pod and one whose
// pod was replaced are refused for good; who cannot be asked is one to ask again.
func TestTokenTellsItsPodsNode(t *testing.T) {
	mine := []string{Audience}
	for _, tc := range []struct {
		what    string
		token   known
		change  func(*apiServer)
		host    string
		kind    error
		refused string
	}{
		{"a good one", known{audiences: mine, user: ours, extra: bound("node1")}, nil, "node1", nil, ""},
		{"before 1.30", known{audiences: mine, user: ours, extra: bound("")}, nil, "node2", nil, ""},
		{"of a pod that was replaced", known{audiences: mine, user: ours, extra: bound("")}, func(s *apiServer) { s.pods = []corev1.Pod{pod("u2", "node2")} }, "", model.ErrInvalid, "is on no node"},
		{"of a pod that waits", known{audiences: mine, user: ours, extra: bound("")}, func(s *apiServer) { s.pods = []corev1.Pod{pod("u1", "")} }, "", model.ErrInvalid, "is on no node"},
		{"of another account", known{audiences: mine, user: "system:serviceaccount:default:contiv-netplugin", extra: bound("node1")}, nil, "", model.ErrInvalid, `"system:serviceaccount:default:contiv-netplugin"`},
		{"for the API server", known{audiences: []string{"https://kubernetes.default.svc"}, user: ours, extra: bound("node1")}, nil, "", model.ErrInvalid, "audience must be contiv"},
		{"where nobody looks at audiences", known{audiences: []string{"x"}, user: ours, extra: bound("node1")}, func(s *apiServer) { s.heedless = true }, "", model.ErrInvalid, "does not confirm the token's audience"},
		{"that has ended", known{audiences: mine, user: ours, extra: bound("node1"), ended: true}, nil, "", model.ErrInvalid, "has expired"},
		{"of no pod", known{audiences: mine, user: ours, extra: map[string]authenticationv1.ExtraValue{nodeName: {"node1"}}}, nil, "", model.ErrInvalid, "not bound to a pod"},
		{"of a pod without a name", known{audiences: mine, user: ours, extra: map[string]authenticationv1.ExtraValue{nodeName: {"node1"}, podUID: {"u1"}}}, nil, "", model.ErrInvalid, "not bound to a pod"},
		{"of a pod without a uid", known{audiences: mine, user: ours, extra: map[string]authenticationv1.ExtraValue{nodeName: {"node1"}, podName: {"netplugin-x"}}}, nil, "", model.ErrInvalid, "not bound to a pod"},
		{"without credentials to ask", known{audiences: mine, user: ours, extra: bound("node1")}, func(s *apiServer) { s.refuses, s.unknown = "/apis/authentication.k8s.io/v1/tokenreviews", true }, "", model.ErrUnavailable, "create tokenreviews"},
		{"without the right to ask", known{audiences: mine, user: ours, extra: bound("node1")}, func(s *apiServer) { s.refuses = "/apis/authentication.k8s.io/v1/tokenreviews" }, "", model.ErrUnavailable, "create tokenreviews"},
		{"without the right to list", known{audiences: mine, user: ours, extra: bound("")}, func(s *apiServer) { s.refuses = "/api/v1/namespaces/kube-system/pods" }, "", model.ErrUnavailable, "list pods"},
	} {
		s := &apiServer{tokens: map[string]known{"a.secret.c": tc.token}, pods: []corev1.Pod{pod("u1", "node2")}}
		if tc.change != nil {
			tc.change(s)
		}
		server := httptest.NewServer(s)
		j, err := New(&rest.Config{Host: server.URL}, "kube-system", "contiv-netplugin")
		if err != nil {
			t.Fatal(err)
		}
		host, by, err := j.Host(t.Context(), "a.secret.c")
		server.Close()
		switch {
		case tc.kind == nil && (err != nil || host != tc.host || by != "kube-system/netplugin-x"):
			t.Errorf("%s: %q by %q, %v", tc.what, host, by, err)
		case tc.kind != nil && (!errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.refused) || strings.Contains(err.Error(), "secret") || host != ""):
			t.Errorf("%s: %q, %v; want %q", tc.what, host, err, tc.refused)
		}
	}
}

// TestMalformedTokensCauseNoRequest: malformed tokens cause no request to the API server, and an API server
// that does not answer is reported as unavailable.
func TestMalformedTokensCauseNoRequest(t *testing.T) {
	s := &apiServer{}
	server := httptest.NewServer(s)
	j, err := New(&rest.Config{Host: server.URL}, "kube-system", "contiv-netplugin")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "contiv-join-x", "a.b." + strings.Repeat("c", maxToken)} {
		if _, _, err := j.Host(t.Context(), text); !errors.Is(err, model.ErrInvalid) || s.asked > 0 {
			t.Errorf("%d bytes: %v, asked %d times", len(text), err, s.asked)
		}
	}
	if _, _, err := j.Host(t.Context(), "a.b.c"); !errors.Is(err, model.ErrInvalid) || s.asked != 1 {
		t.Errorf("one that nobody knows: %v, asked %d times", err, s.asked)
	}
	if _, _, err := j.Host(t.Context(), "a.b."+strings.Repeat("c", maxToken-4)); !errors.Is(err, model.ErrInvalid) || s.asked != 2 {
		t.Errorf("one of the longest: %v, asked %d times", err, s.asked)
	}
	if j, err := New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}, "kube-system", "contiv-netplugin"); err == nil || j != nil {
		t.Errorf("with an authority that cannot be read: %v, %v", j, err)
	}
	server.Close()
	if _, _, err := j.Host(t.Context(), "a.secret.c"); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "cannot review the token") || strings.Contains(err.Error(), "secret") {
		t.Errorf("with the API server away: %v", err)
	}
}

// TestBadNamesOfAccountsAreRefused: see ParseName.
func TestBadNamesOfAccountsAreRefused(t *testing.T) {
	if ns, name, err := ParseName("kube-system/contiv-netplugin"); err != nil || ns != "kube-system" || name != "contiv-netplugin" {
		t.Errorf("%q %q %v", ns, name, err)
	}
	for _, text := range []string{"", "x", "/x", "x/", "a/b/c", "a:b/c", "a/b:c"} {
		if _, _, err := ParseName(text); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
