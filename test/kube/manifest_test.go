//go:build integration

package kube

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// TestAPIServerTakesTheManifests: the API server takes each object of the manifests, and knows every
// field of them.
func TestAPIServerTakesTheManifests(t *testing.T) {
	c, _ := control(t)
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	client := ok[*dynamic.DynamicClient](t)(dynamic.NewForConfig(config))
	create := func(o *unstructured.Unstructured) error {
		r := client.Resource(resourceOf(t, o)).Namespace(o.GetNamespace())
		_, err := r.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	for file, want := range map[string]int{"contiv.yaml": 11, "uninstall.yaml": 1} {
		text := ok[[]byte](t)(os.ReadFile("../../packaging/kubernetes/" + file))
		n := 0
		for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if len(o.Object) == 0 { // the comment at the head
				continue
			}
			n++
			if err := create(o); err != nil {
				t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
			}
			spec, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			if err != nil || !found {
				continue
			}
			spec["hostNetwrok"] = true
			if err := unstructured.SetNestedMap(o.Object, spec, "spec", "template", "spec"); err != nil {
				t.Fatal(err)
			}
			if err := create(o); err == nil || !strings.Contains(err.Error(), "hostNetwrok") {
				t.Errorf("%s: a field that nobody knows: %v", o.GetName(), err)
			}
		}
		if n != want {
			t.Errorf("%s has %d objects, %d wanted", file, n, want)
		}
	}
}
