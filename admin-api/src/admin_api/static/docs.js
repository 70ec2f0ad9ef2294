// Starts swagger-ui on our own description. No validator badge: it would ask a server on the internet.
window.addEventListener("load", () => {
  SwaggerUIBundle({ url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null });
});
