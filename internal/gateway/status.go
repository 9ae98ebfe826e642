// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log"
	"log/slog"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"
)

var (
	schemaNone    = schema.GroupResource{}
	schemaVersion = schema.GroupVersion{Version: "v1"}
)

// codecs encode the gateway's own responses in the format that the client requests.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schemaVersion)
	return serializer.NewCodecFactory(scheme)
})

// respond writes an error as a Status, which Kubernetes clients can decode.
func respond(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	responsewriters.ErrorNegotiated(err, codecs(), schemaVersion, w, r)
}

// forbidden returns a 403 response with the message of an error.
func forbidden(err error) *apierrors.StatusError {
	out := apierrors.NewForbidden(schemaNone, "", nil)
	out.ErrStatus.Message = "forbidden: " + err.Error()
	out.ErrStatus.Details = nil
	return out
}

// quietLogger logs messages from net/http about broken connections only at a verbose level.
func quietLogger() *log.Logger {
	return slog.NewLogLogger(logr.ToSlogHandler(klog.Background().V(4)), slog.LevelInfo)
}
