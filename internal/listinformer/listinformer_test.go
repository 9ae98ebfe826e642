package listinformer_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/listinformer"
)

// TestLists: what an informer begins with is a list, where client-go's would stream it.
func TestLists(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, true)
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("watch") + r.URL.Query().Get("resourceVersion")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"KindList","apiVersion":"g/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	go listinformer.New(client, schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "kinds"}).RunWithContext(t.Context())
	for _, want := range []string{"0", "true7"} {
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("asked %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing is asked")
		}
	}
}
