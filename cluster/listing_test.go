package cluster_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/cluster"
)

// TestInformersListTheLatest: what an informer of our kinds begins with is neither streamed, which ends late, nor any state that a server has.
func TestInformersListTheLatest(t *testing.T) {
	asked := make(chan *http.Request, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"CustomResourceDefinitionList","apiVersion":"apiextensions.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	defer server.Close()
	clients, err := cluster.NewClients(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	scopes, err := cluster.NewCRDScopes(clients.Dynamic)
	if err != nil {
		t.Fatal(err)
	}
	go scopes.Run(t.Context())
	select {
	case r := <-asked:
		if q := r.URL.Query(); q.Has("watch") || q.Get("resourceVersion") != "" {
			t.Errorf("asked %s", r.URL)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing is asked")
	}
}
